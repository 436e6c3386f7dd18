"""What `status --watch` shows of a status, by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yrnode.cli import nodes
from yrnode.cli.table import ago, plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

Status = dict[str, Any]

WIDE = 110
"""Columns from which the lesser ones are shown too."""

# beside the word, never instead of it
_STYLES = {
    **dict.fromkeys(("ready", "go", "up", "answers", "in"), "green"),
    **dict.fromkeys(("NOT READY", "failed", "UNAVAILABLE", "absent", "fenced"), "bold red"),
    **dict.fromkeys(("unhealthy", "backoff", "stopping", "unknown"), "yellow"),
    **dict.fromkeys(("starting", "cleaning", "stop"), "cyan"),
}


def picture(s: Status | None, silence: str, width: int) -> RenderableType:
    """`s`: the last status, None before there was one. `width` in columns."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    if silence:
        last = "; below is what it said last" if s is not None else ""
        parts.append(Text(f"{plain(silence)}{last}", style="bold red"))
    if s is None:
        return Group(*parts, Text("" if silence else "asking yrnode …"))
    parts += _head(s)
    parts += [_components(s, width), *_groups(s, width), *_peers(s, width), *_failing(s, width)]
    return Group(*parts)


def _head(s: Status) -> list[RenderableType]:
    from rich.text import Text

    from yrnode.cli.status import notes

    now, store = s["at"], s["store"]
    head = Text.assemble(
        (f"{s['node']} of {s['cluster']}", "bold"),
        "  ",
        _styled("ready" if s["ready"] else "NOT READY"),
        f"  yrnode {s['version']}, up {ago(s['started_at'], now)}  store ",
        _styled("answers" if store["available"] else "UNAVAILABLE"),
        f" for {ago(store['since'], now)}",
    )
    return [head, *(Text(line, style="yellow", no_wrap=True, overflow="ellipsis") for line in notes(s)), Text("")]


def _components(s: Status, width: int) -> Table:
    from yrnode.cli.status import why

    wide = width >= WIDE
    table = _table("component", "state", "for", *(("pid", "restarts", "gen") if wide else ()), "reason")
    for name, c in s["components"].items():
        more = (c["pid"], c["restarts"], c["generation"] or None) if wide else ()
        bad = worst(c)
        # a start names its first gate itself
        words = [why(c), *([bad] if bad and c["state"] != "starting" else [])]
        reason = "; ".join(filter(None, words))
        # what is in order needs no second line
        last = _short(reason) if c["state"] == "ready" and not bad else reason
        _row(table, name, _styled(c["state"]), ago(c["since"], s["at"]), *more, last)
    return table


def worst(c: dict[str, Any]) -> str:
    """The check that has failed most often in a row, with its evidence; empty where none fails."""
    failing = {n: v for n, v in c["checks"].items() if v["verdict"] == "fail" and v["age_s"] is not None}
    if not failing:
        return ""
    name = max(failing, key=lambda n: (failing[n]["failing"], failing[n]["failures"]))
    more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
    return f"check {name} fails: {failing[name]['evidence']}{more}"


def _groups(s: Status, width: int) -> list[RenderableType]:
    from yrnode.cli.status import why

    if not s["groups"]:
        return []
    table = _table("group", "gen", "stage", "phases", "waits for", *(("cause",) if width >= WIDE else ()))
    for name, g in s["groups"].items():
        waits = "; ".join(
            filter(None, (nodes.few(g["waiting_for"]), "" if width >= WIDE else why({"progress": g.get("progress")})))
        )
        more = (why(g),) if width >= WIDE else ()
        _row(table, name, g["generation"], _styled(g["stage"]), nodes.phases(g["phases"]), waits, *more)
    return [_gap(), table]


def _peers(s: Status, width: int) -> list[RenderableType]:
    rows = nodes.peers(s)
    if not rows:
        return []
    table = _table(*nodes.PEERS)
    for name, word, *more in rows:
        _row(table, name, _styled(word), *more)
    return [_gap(), table]


def _failing(s: Status, width: int) -> list[RenderableType]:
    """Of the node itself: a component's are beside it."""
    bad = worst({"checks": s.get("node_checks", {})})
    if not bad:
        return []
    from rich.text import Text

    return [_gap(), Text(f"node: {plain(bad)}", style="yellow")]


def _gap() -> RenderableType:
    from rich.text import Text

    return Text("")


def _styled(word: str) -> Text:
    from rich.text import Text

    return Text(word, style=_STYLES.get(word, ""))


def _table(*titles: str) -> Table:
    """The last column takes what is left."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False, expand=True, header_style="bold")
    for title in titles[:-1]:
        table.add_column(title.upper(), no_wrap=True)
    table.add_column(titles[-1].upper(), ratio=1, overflow="fold")
    return table


def _row(table: Table, *cells: object) -> None:
    from rich.text import Text

    table.add_row(*(c if isinstance(c, Text) else Text(plain(c)) for c in cells))


def _short(text: str) -> Text:
    """On one line."""
    from rich.text import Text

    return Text(plain(text), no_wrap=True, overflow="ellipsis")
