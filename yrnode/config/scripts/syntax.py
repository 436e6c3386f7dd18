"""bash text → its syntax tree, by tree-sitter. Nothing is run, and nothing in the text can make it last."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from yrnode.model.errors import UsageError

MAX_DEPTH = 100
MAX_NODES = 100_000
DEADLINE_S = 10.0
SMALL = 4096
"""Bytes of a text that cannot cost much: below a tenth of a second."""


class Node(NamedTuple):
    """A piece of the text: what it is, where, and what is in it."""

    type: str
    field: str
    """Its part in the piece around it, such as name or value."""
    start: int
    end: int
    """Bytes of the text, from and up to."""
    row: int
    end_row: int
    """Lines, from 1."""
    named: bool
    broken: bool
    """Whether the grammar does not understand all of it."""
    children: "tuple[Node, ...]"

    def child(self, field: str) -> "Node | None":
        """The child that is this part of it."""
        return next((c for c in self.children if c.field == field), None)

    def of(self, *types: str) -> "Iterator[Node]":
        """The children of these types."""
        return (c for c in self.children if c.type in types)


def tree(text: bytes, file: str) -> Node:
    """The tree of a whole file. Raises UsageError where the text is too much for the grammar.

    Some texts that are no scripts cost the grammar the square of their length, deep in C: so a child process parses
    what is not small.
    """
    found = _parsed(text) if len(text) <= SMALL else _beside(text, file)
    if isinstance(found, str):
        raise UsageError(f"{file}: {found}")
    return found


def _beside(text: bytes, file: str) -> Node | str:
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe(duplex=False)
    child = context.Process(target=_parse, args=(its, text), daemon=True)
    child.start()
    its.close()
    try:
        if not ours.poll(DEADLINE_S):
            raise UsageError(f"{file}: it cannot be understood as a shell script; give one of the guides' scripts")
        found: Node | str = ours.recv()
        return found
    except EOFError:
        raise UsageError(f"{file}: it cannot be understood as a shell script") from None
    finally:
        child.kill()
        child.join()
        ours.close()


def _parse(pipe: Connection, text: bytes) -> None:
    pipe.send(_parsed(text))


def _parsed(text: bytes) -> Node | str:
    """The tree, or why there is none."""
    import tree_sitter
    import tree_sitter_bash

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    try:
        return _Copy().node(parser.parse(text).root_node, "", 0)
    except OverflowError as error:
        return str(error)


class _Copy:
    """tree-sitter's nodes → ours, which outlive the parser and fit through a pipe."""

    def __init__(self) -> None:
        self.left = MAX_NODES

    def node(self, node: Any, field: str, depth: int) -> Node:
        self.left -= 1
        if self.left < 0:
            raise OverflowError("it has too many words for a deployment script")
        if depth > MAX_DEPTH:
            raise OverflowError("it is nested too deeply for a deployment script")
        children = tuple(
            self.node(c, node.field_name_for_child(i) or "", depth + 1) for i, c in enumerate(node.children)
        )
        rows = node.start_point[0] + 1, node.end_point[0] + 1
        broken = node.has_error or node.is_missing
        return Node(node.type, field, node.start_byte, node.end_byte, *rows, node.is_named, broken, children)
