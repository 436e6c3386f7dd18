"""`yrnode logs NAME`: a component's own output, across its rotations."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote

from yrnode.cli import reader
from yrnode.cli.client import Client
from yrnode.cli.errors import Down, NotGood
from yrnode.cli.follow import Follower
from yrnode.cli.numbers import count
from yrnode.cli.place import Place, find

_POLL_S = 0.2
_ASK_S = 2.0
_BLOCK = 64 * 1024


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a component, as yrnode status names it")
    parser.add_argument("-f", dest="follow", action="store_true", help="go on with new output, until Ctrl-C")
    parser.add_argument("-n", type=count, default=50, metavar="N", help="the last N lines (50)")


def run(args: argparse.Namespace) -> int:
    """0; 1 if there is no such output. JSON is one object a line. Secrets are covered, line by line."""
    from yrnode.components.known import of_file, of_running
    from yrnode.config.load import parsed
    from yrnode.model.cover import Cover

    place = find(args)
    client = Client(place)

    def paths() -> list[Path]:
        try:
            return [Path(p) for p in client.read(f"/logs?name={quote(os.fsencode(args.name), safe='')}")["paths"]]
        except Down:
            return _in_log_dir(place, args.name)

    cover = Cover([*of_file(parsed(place.file), place.file), *of_running(place.run_dir)])

    def show(lines: Iterable[bytes]) -> None:
        for raw in lines:
            line = cover(raw.decode("utf-8", "replace").rstrip("\r\n"))
            print(json.dumps({"name": args.name, "line": line}) if args.output == "json" else line)
        sys.stdout.flush()

    found = [p for p in paths() if p.exists()]
    if not found:
        raise NotGood(f"{args.name} has written nothing in {place.log_dir}; yrnode status shows the components")
    try:
        log = Follower(found[-1])
        show(last_lines(found, args.n, {found[-1]: log.end}))
        if args.follow:
            reader.end_with_it()
            _follow(paths, log, show)
    except PermissionError as e:
        raise NotGood(f"{e.filename} is closed to this user; use sudo") from None
    return 0


def _in_log_dir(place: Place, name: str) -> list[Path]:
    """A stopped daemon's files: `a/b` writes a-b.log, and rotations add to that name."""
    base = f"{name.replace('/', '-')}.log"
    if not place.log_dir.is_dir():
        return []
    found = [p for p in place.log_dir.iterdir() if p.name == base or p.name.startswith(f"{base}.")]
    return sorted(found, key=lambda p: (p.name == base, p.stat().st_mtime))


def last_lines(paths: list[Path], n: int, ends: dict[Path, int] | None = None) -> list[bytes]:
    """The last `n` lines of files that follow one another, oldest first. `ends`: a file's end in bytes, if sooner."""
    lines: list[bytes] = []
    for path in reversed(paths):
        if len(lines) >= n:
            break
        lines = _tail(path, n - len(lines), (ends or {}).get(path)) + lines
    return lines


def _tail(path: Path, n: int, end: int | None) -> list[bytes]:
    data = b""
    with path.open("rb") as f:
        at = f.seek(0, os.SEEK_END) if end is None else end
        # one more line break than lines: the first block may begin inside a line
        while at > 0 and data.count(b"\n") <= n:
            size = min(_BLOCK, at)
            at -= size
            f.seek(at)
            data = f.read(size) + data
    return data.splitlines()[-n:]


def _follow(paths: Callable[[], list[Path]], log: Follower, show: Callable[[Iterable[bytes]], None]) -> None:
    """For ever: new lines of the newest file, whichever that is."""
    asked = time.monotonic()
    while True:
        if lines := log.lines():
            show(lines)
            continue
        if time.monotonic() - asked >= _ASK_S:
            asked = time.monotonic()
            log.go_on(paths())
        time.sleep(_POLL_S)
