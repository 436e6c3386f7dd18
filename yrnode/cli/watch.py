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
from typing import Any

from yrnode.cli import reader
from yrnode.cli.client import Client
from yrnode.cli.errors import NotGood
from yrnode.cli.nodes import peer_word, phases
from yrnode.cli.picture import Status, picture
from yrnode.cli.place import Place
from yrnode.cli.table import plain, span

PERIOD_S = 1.0
ANSWER_S = 3.0
"""How long a daemon that hangs may take before it is said."""


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
        found[f"group {name}"] = f"generation {g['generation']} {g['stage']} {phases(g['phases'])}"
    for name, p in s["peers"].items():
        found[f"node {name}"] = peer_word(p)
    return found


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
