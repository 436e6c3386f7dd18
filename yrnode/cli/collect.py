"""`yrnode collect`: one archive with what is needed to find out what went wrong here, secrets covered."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yrnode import __version__
from yrnode.cli.client import Client
from yrnode.cli.errors import NotGood
from yrnode.cli.place import Place, find
from yrnode.cli.table import plain
from yrnode.model.errors import UsageError

if TYPE_CHECKING:
    from yrnode.collect.gather import Entry, Source
    from yrnode.collect.sources import Subject

LONGEST_S = 120.0
SMALLEST, LARGEST = 64 * 1024, 64 * 1024**2


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "to", metavar="FILE", nargs="?", default=".", help="the archive, or a folder for it; else the present folder"
    )
    parser.add_argument(
        "--log-size", default="8MB", metavar="SIZE", help="of each log at most so much, its end; else 8MB"
    )


def run(args: argparse.Namespace) -> int:
    """0 once the archive is whole, also where some of it could not be had: it says what, and why."""
    from yrnode.collect.archive import Archive
    from yrnode.collect.gather import gather
    from yrnode.collect.sources import sources
    from yrnode.model.cover import Cover

    most = _size(args.log_size)
    place = find(args, runs=False)
    subject, known, fault = _subject(args, place)
    path = _path(args.to, place)
    about = {
        "yrnode": __version__,
        "node": place.node,
        "cluster": place.cluster,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cluster_file": place.file,
        "cluster_file_fault": fault,
    }
    # what serves on this host goes first
    os.nice(10)
    with Archive(path) as archive:
        every = [*_asked(place), *_found(subject, place), *sources(subject, most)]
        entries = gather(archive, every, Cover(known), about, LONGEST_S)
        size = archive.finish()
    if args.output == "json":
        print(json.dumps({"path": str(path), "bytes": size, "files": [e.__dict__ for e in entries]}))
    else:
        print("\n".join(_text(path, size, entries)))
    return 0


def _size(text: str) -> int:
    from yrnode.model.units import parse_size

    try:
        size = parse_size(text)
    except ValueError as e:
        raise UsageError(f"collect: --log-size: {e}") from None
    if not SMALLEST <= size <= LARGEST:
        raise UsageError(f"collect: --log-size is from {SMALLEST // 1024}KB to {LARGEST // 1024**2}MB")
    return size


def _path(to: str, place: Place) -> Path:
    path = Path(to)
    if path.is_dir():
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return path / f"yrnode-{place.cluster}-{place.node}-{at}.tar.gz"
    if not path.name.endswith(".tar.gz"):
        raise UsageError(f"collect: {to} is no folder, and does not end in .tar.gz")
    return path


def _subject(args: argparse.Namespace, place: Place) -> tuple[Subject, list[str], str]:
    """What is collected, the secrets that are known, and what is wrong with the cluster file, if anything."""
    from yrnode.collect.sources import Subject
    from yrnode.components import known as secrets
    from yrnode.components import node as components
    from yrnode.config.load import load, parsed
    from yrnode.model.cover import values_of

    which = ["--config", place.file, *(["--node", place.node] if place.node else [])]
    # in a process of its own: it asks programs, and may hang where they do
    check = [sys.executable, "-m", "yrnode.cli.main", "check", "-o", "json", *which]

    def subject(**more: Any) -> Subject:
        return Subject(Path(place.file), place.state_dir, place.run_dir, place.log_dir, check, **more)

    known = [*values_of(dict(os.environ)), *secrets.of_running(place.run_dir)]
    try:
        cluster = load(place.file)
    except UsageError as e:
        return subject(), [*known, *secrets.of_file(parsed(place.file), place.file)], e.lines[0]
    known += secrets.of_file(cluster.model_dump(mode="json"), place.file)
    try:
        scripts = [script for script in cluster.env_from if script.exists()]
        specs = components.specs(components.host_of(cluster, place.node, os.environ, scripts))
    except UsageError as e:
        return subject(cluster=cluster), known, e.lines[0]
    known += secrets.of_specs(specs)
    return subject(cluster=cluster, specs=specs), known, ""


def _asked(place: Place) -> list[Source]:
    """What the daemon tells."""
    from yrnode.collect.gather import Missing, Source

    def read(path: str) -> bytes:
        try:
            return json.dumps(Client(place).read(path)).encode()
        except NotGood as e:
            raise Missing(str(e)) from None

    return [Source(f"{name}.json", partial(read, f"/{name}")) for name in ("status", "cache")]


def _found(subject: Subject, place: Place) -> list[Source]:
    """What would be run, and what is left over."""
    from yrnode.cli.render import as_dict
    from yrnode.collect.gather import Missing, Source
    from yrnode.process.launch import Owner
    from yrnode.process.lock import held
    from yrnode.residue import inventory

    def rendered() -> bytes:
        if not subject.specs:
            raise Missing("see cluster_file_fault in the manifest")
        return json.dumps(as_dict(place.node, subject.specs)).encode()

    def left_over() -> bytes:
        owner = Owner(f"{place.cluster}/{place.node}", place.state_dir, place.run_dir)
        scope = inventory.Scope(owner, tuple(subject.specs), held(place.state_dir))
        return json.dumps([item.as_dict() for item in inventory.find(scope)]).encode()

    return [Source("rendered.json", rendered), Source("left-over.json", left_over)]


def _text(path: Path, size: int, entries: Sequence[Entry]) -> list[str]:
    folders: dict[str, list[Entry]] = {}
    for e in entries:
        if not e.missing:
            folders.setdefault(e.name.partition("/")[0] if "/" in e.name else "", []).append(e)
    lines = [f"{path}: {_bytes(size)}"]
    for folder, found in folders.items():
        names = ", ".join(e.name.removeprefix(f"{folder}/") for e in found)
        lines.append(f"  {f'{folder}/' if folder else ''}: {_bytes(sum(e.bytes for e in found))}: {names}")
    missing = [e for e in entries if e.missing]
    if missing:
        lines.append("not in it:")
        lines += [f"  {e.name}: {plain(e.missing)}" for e in missing]
    lines.append("secrets that are named or known are covered; look through it before it leaves your hands")
    return lines


def _bytes(count: int) -> str:
    return f"{count / 1024**2:.1f} MB" if count >= 1024**2 else f"{count / 1024:.0f} kB"
