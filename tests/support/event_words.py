"""Every word that an event can have as its `what`, read from the code: a new one is found without being told of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import yrnode
from yrnode.api.control import CLEANED
from yrnode.api.node import VERBS
from yrnode.model.board import BoardMove
from yrnode.model.group import GroupMove
from yrnode.model.member import MemberMove
from yrnode.model.state import Move
from yrnode.node.groups import WORDS
from yrnode.node.notices import LATE
from yrnode.telemetry.events import LOST

MADE: dict[str, list[str]] = {
    "action.move.value": [word.value for kind in (Move, GroupMove, BoardMove) for word in kind],
    "WORDS[record.stage].value": [word.value for word in WORDS.values()],
    "f'operator-{verb}'": [f"operator-{verb}" for verb in VERBS],
    "f'member-{step.move.value}'": [f"member-{move.value}" for move in MemberMove],
    "LATE": [LATE],
    "CLEANED": [CLEANED],
}
"""By the text of an expression, the words that it stands for."""


class UnknownWord(Exception):
    """An expression that nobody has said the words of: add it to MADE."""


def event_words() -> set[str]:
    found = {LOST}
    for path in Path(yrnode.__file__).parent.rglob("*.py"):
        text = path.read_text("utf-8")
        if ".emit(" in text:
            found |= words_of(text, str(path))
    return found


def words_of(text: str, name: str) -> set[str]:
    """Of one module: what its calls of an EventLog's `emit` have as the second argument."""
    tree = ast.parse(text)
    found: set[str] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in _calls(function, "emit", 3):
            found |= set(_words(call.args[1], function, tree, name))
    return found


def _calls(inside: ast.AST, name: str, least: int) -> Iterator[ast.Call]:
    for node in ast.walk(inside):
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
        if named and len(node.args) >= least:
            yield node


def _words(e: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.AST, name: str) -> Iterator[str]:
    if isinstance(e, ast.Constant) and isinstance(e.value, str):
        yield e.value
    elif isinstance(e, ast.IfExp):
        yield from _words(e.body, function, tree, name)
        yield from _words(e.orelse, function, tree, name)
    elif (known := MADE.get(ast.unparse(e))) is not None:
        yield from known
    elif isinstance(e, ast.Name):
        yield from _of_name(e, function, tree, name)
    else:
        raise UnknownWord(f"{name}:{e.lineno}: {ast.unparse(e)}")


def _of_name(
    e: ast.Name, function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.AST, name: str
) -> Iterator[str]:
    """Of a variable what is given to it; of an argument what the function is called with."""
    values = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == e.id for t in node.targets)
    ]
    arguments = [a.arg for a in function.args.args if a.arg != "self"]
    if not values and e.id in arguments:
        at = arguments.index(e.id)
        values = [call.args[at] for call in _calls(tree, function.name, at + 1)]
    if not values:
        raise UnknownWord(f"{name}:{e.lineno}: {e.id}")
    for value in values:
        yield from _words(value, function, tree, name)
