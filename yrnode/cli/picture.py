"""What `status --watch` shows of a status, by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    **dict.fromkeys(("NOT READY", "failed", "held", "UNAVAILABLE", "absent", "fenced"), "bold red"),
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
            filter(None, (", ".join(g["waiting_for"]), "" if width >= WIDE else why({"progress": g.get("progress")})))
        )
        more = (why(g),) if width >= WIDE else ()
        _row(table, name, g["generation"], _styled(g["stage"]), phases(g["phases"]), waits, *more)
    return [_gap(), table]


def phases(by_node: dict[str, str]) -> str:
    """How far the nodes are, in few words: of many nodes, who differs from the most."""
    if len(by_node) == 1:
        return next(iter(by_node.values()))
    nodes: dict[str, list[str]] = {}
    for node, phase in by_node.items():
        nodes.setdefault(phase, []).append(node)
    most = max(nodes, key=lambda p: len(nodes[p]), default="")
    return ", ".join(f"{len(n)} {p}" + ("" if p == most else f" ({' '.join(n)})") for p, n in nodes.items())


def _peers(s: Status, width: int) -> list[RenderableType]:
    if not s["peers"]:
        return []
    table = _table("node", "is", "since", "yrnode", "differs")
    for name, p in s["peers"].items():
        since = ago(p["absent_since"], s["at"]) if p["absent_since"] else None
        _row(table, name, _styled(peer_word(p)), since, p["version"], ", ".join(map(str, p["differs"])))
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


def peer_word(p: dict[str, Any]) -> str:
    if p["fenced"]:
        return "fenced"
    if p["up"] is None:
        return "unknown"
    return "up" if p["up"] else "absent"
