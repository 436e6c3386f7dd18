"""`yrnode status --watch`: a table that stays on the terminal; elsewhere a line for each change."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from yrnode.cli import reader
from yrnode.cli.client import Client
from yrnode.cli.errors import NotGood
from yrnode.cli.place import Place
from yrnode.cli.table import ago, plain, span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

PERIOD_S = 1.0
ANSWER_S = 3.0
"""How long a daemon that hangs may take before it is said."""

Status = dict[str, Any]


class Feed:
    """The daemon's newest status, asked once a second, over its restarts. `at`: monotonic, of the last answer."""

    def __init__(self, place: Place) -> None:
        self._client = Client(place, ANSWER_S)
        self.status: Status | None = None
        self.at = time.monotonic()
        self.error = ""

    def ask(self) -> None:
        try:
            self.status = self._client.read("/status")
            self.at, self.error = time.monotonic(), ""
        except NotGood as e:
            self.error = str(e)

    @property
    def silence(self) -> str:
        """Since when there is no answer, and why; empty while there is one."""
        return f"no answer for {span(time.monotonic() - self.at)}: {self.error}" if self.error else ""


def watch(place: Place, output: str) -> int:
    """Until Ctrl-C, which is 0."""
    reader.end_with_it()
    feed = Feed(place)
    with contextlib.suppress(KeyboardInterrupt):
        if output == "text" and sys.stdout.isatty():
            _on_terminal(feed)
        else:
            _changes(feed, output)
    return 0


def _changes(feed: Feed, output: str) -> None:
    """For a file or a pipe: what it is at first, then what has changed."""
    before: dict[str, str] = {}
    while True:
        feed.ask()
        now = _words(feed)
        changed = [f"{name}: {words}" for name, words in now.items() if before.get(name) != words]
        changed += [f"{name}: is no more" for name in before if name not in now]
        if changed and output == "json":
            print(json.dumps({"ready": False, "error": feed.error} if feed.error else feed.status), flush=True)
        elif changed:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            print("\n".join(f"{at} {plain(line)}" for line in changed), flush=True)
        before = now
        time.sleep(PERIOD_S)


def _words(feed: Feed) -> dict[str, str]:
    """What counts as a change, by what it is of. No number that moves by itself."""
    if feed.error or feed.status is None:
        return {"yrnode": f"no answer: {feed.error}"}
    s = feed.status
    found = {s["node"]: "ready" if s["ready"] else "NOT READY"}
    found["store"] = "answers" if s["store"]["available"] else "UNAVAILABLE"
    for name, c in s["components"].items():
        late = " LATE" if (c.get("progress") or {}).get("late") else ""
        found[name] = f"{c['state']}{late}" + (f": {c['reason']}" if c["state"] not in ("ready", "starting") else "")
    for name, g in s["groups"].items():
        found[f"group {name}"] = f"generation {g['generation']} {g['stage']} {' '.join(g['phases'].values())}"
    for name, p in s["peers"].items():
        found[f"node {name}"] = peer_word(p)
    return found


def peer_word(p: dict[str, Any]) -> str:
    if p["fenced"]:
        return "fenced"
    if p["up"] is None:
        return "unknown"
    return "up" if p["up"] else "absent"


def _on_terminal(feed: Feed) -> None:
    from rich.console import Console
    from rich.live import Live

    # a terminal that cannot show a character gets another one, not a traceback
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    console = Console(highlight=False, emoji=False, markup=False)
    look = threading.Event()
    done = threading.Event()
    # asked beside, so that a daemon that hangs does not freeze the picture
    threading.Thread(target=_ask, args=(feed, look, done), daemon=True).start()
    with _signals(look), Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        try:
            while True:
                live.update(_Screen(feed), refresh=True)
                look.wait(PERIOD_S)
                look.clear()
        finally:
            done.set()


def _ask(feed: Feed, look: threading.Event, done: threading.Event) -> None:
    while not done.is_set():
        feed.ask()
        look.set()
        done.wait(PERIOD_S)


@contextlib.contextmanager
def _signals(look: threading.Event) -> Iterator[None]:
    """A new size is drawn at once, and whoever ends us gets his terminal back."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    own: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
        signal.SIGWINCH: lambda number, frame: look.set(),
        signal.SIGTERM: end,
        signal.SIGHUP: end,
    }
    before = {number: signal.signal(number, act) for number, act in own.items()}
    try:
        yield
    finally:
        for number, act in before.items():
            signal.signal(number, act)


class _Screen:
    """The picture in the size that the terminal has when it is drawn; what does not fit is counted."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.segment import Segment
        from rich.text import Text

        whole = picture(self._feed.status, self._feed.silence, options.max_width)
        lines = console.render_lines(whole, options.update(height=None), pad=False)
        room = max(1, console.size.height - 1)
        if len(lines) > room:
            more = Text(f"… {len(lines) - room + 1} more lines: make the terminal taller, or see yrnode status")
            lines = [*lines[: room - 1], *console.render_lines(more, options.update(height=None), pad=False)[:1]]
        for line in lines:
            yield from line
            yield Segment.line()


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
