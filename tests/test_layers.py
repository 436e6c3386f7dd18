"""The house rule: imports point down only, values and decisions touch nothing outside, a file stays readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "yrnode"
# From the top down. Rooms of one line are neighbours, which know nothing of each other but for NEIGHBOURS.
LEVELS = (
    {"cli"},
    {"demo", "collect", "init"},
    {"api"},
    {"node"},
    {"components", "preflight"},
    {"checks", "process", "residue", "telemetry", "store"},
    {"config"},
    {"policy"},
    {"model"},
)
NEIGHBOURS = {
    ("checks", "process"),
    ("checks", "store"),
    ("residue", "process"),
    ("preflight", "components"),
}
LEVEL = {room: at for at, rooms in enumerate(LEVELS) for room in rooms}
PURE = {"model", "policy"}
NO_IO = {
    *("os", "io", "socket", "select", "selectors", "subprocess", "shutil", "tempfile", "signal", "fcntl", "ctypes"),
    *("time", "datetime", "asyncio", "threading", "logging", "random", "secrets", "uuid"),
    *("aiohttp", "psutil", "urllib", "http", "ssl"),
}
FILES = sorted(ROOT.rglob("*.py"))


def room_of(module: str) -> str:
    """The room of a module such as yrnode.policy.plan; the stand-in engine is one for itself."""
    if module.startswith("yrnode.demo.engine"):
        return "demo.engine"
    return module.split(".")[1] if module.count(".") else ""


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def imports(source: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, also of those inside functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "relative import"
            elif node.module == "yrnode":
                for alias in node.names:
                    yield node.lineno, f"yrnode.{alias.name}"
            else:
                yield node.lineno, node.module or ""


def faults(module: str, source: str) -> list[str]:
    room = room_of(module)
    found = []
    for line, name in imports(source):
        where = f"{module}:{line} imports {name}"
        if name == "relative import":
            found.append(where)
        elif name.split(".")[0] == "yrnode":
            other = room_of(name)
            # the package itself holds nothing but its version
            if other in LEVEL or other == "demo.engine":
                found += [] if allowed(room, other) else [where]
        elif room in PURE and name != "urllib.parse" and reaches_out(module, name):
            found.append(where)
    return found


def reaches_out(module: str, name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in NO_IO or (name == "pathlib" and module != "yrnode.model.spec")


def allowed(room: str, other: str) -> bool:
    if room == other:
        return True
    if "demo.engine" in (room, other):
        return room == "demo"
    return LEVEL[other] > LEVEL[room] or (room, other) in NEIGHBOURS


def test_every_room_has_its_place() -> None:
    rooms = {p.name for p in ROOT.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert rooms - LEVEL.keys() == set()


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_imports_point_down(file: Path) -> None:
    assert faults(module_of(file), file.read_text()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("yrnode.policy.plan", "from yrnode.node.world import World"),
        ("yrnode.policy.plan", "import time"),
        ("yrnode.policy.plan", "def f():\n    from os import path"),
        ("yrnode.policy.plan", "from pathlib import Path"),
        ("yrnode.policy.plan", "from urllib.request import urlopen"),
        ("yrnode.model.state", "from yrnode.policy import plan"),
        ("yrnode.store.gateway", "from yrnode.checks import etcd"),
        ("yrnode.process.watch", "from yrnode.residue import files"),
        ("yrnode.components.node", "from yrnode.preflight import host"),
        ("yrnode.api.app", "from yrnode import cli"),
        ("yrnode.demo.engine.core", "from yrnode.model import state"),
        ("yrnode.cli.demo", "from yrnode.demo.engine import core"),
        ("yrnode.cli.run", "from . import main"),
    ],
)
def test_the_rule_sees(module: str, source: str) -> None:
    assert len(faults(module, source)) == 1


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_a_file_can_be_read_in_one_go(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= 400
