"""A shell script as what it sets and which commands it gives: read in order, never run.

Assignments, `export`, `unset`, arrays, quotes and `${X}` are followed. Conditions, loops, functions, `source` and the
output of commands are not: each is listed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from yrnode.config.scripts import values
from yrnode.config.scripts.expand import Expander
from yrnode.config.scripts.notes import Note, Notes, add
from yrnode.config.scripts.syntax import Node, tree
from yrnode.model.errors import UsageError

MAX_BYTES = 1024 * 1024
MAX_STATEMENTS = 2000
_NOT_FOLLOWED = {
    "if_statement": "a condition is not evaluated",
    "case_statement": "a condition is not evaluated",
    "test_command": "a condition is not evaluated",
    "negated_command": "a condition is not evaluated",
    "for_statement": "a loop is not run",
    "c_style_for_statement": "a loop is not run",
    "while_statement": "a loop is not run",
    "function_definition": "a function is not run",
    "subshell": "commands in brackets are not followed",
}
_NOT_UNDERSTOOD = "this is not understood; are its quotes closed?"
_WITH_GAPS = ("string", "expansion", "heredoc_redirect", "heredoc_body", "regex")
"""Pieces whose text is taken as it stands between their own pieces."""
_WITHOUT_EFFECT = ("tee", "true", ":", "exit", "return", "echo")


@dataclass(frozen=True)
class Command:
    """One command as it would be given."""

    line: int
    text: str
    """As it is written, on one line."""
    words: tuple[str, ...]
    env: Mapping[str, str]
    """What is exported then, and what stands before the command."""
    unset: tuple[str, ...]
    comments: tuple[str, ...]
    """The comment lines before it, since the command before."""
    own: tuple[str, ...] = ()
    """Which variables of `env` stand before the command itself."""
    unread: tuple[Note, ...] = ()
    """What in its words was not read."""


@dataclass
class Script:
    """A script that was read."""

    file: str
    commands: list[Command] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """As they are at the end."""
    arrays: dict[str, tuple[str, ...]] = field(default_factory=dict)
    exported: dict[str, int] = field(default_factory=dict)
    """Name → line."""
    lines: dict[str, int] = field(default_factory=dict)
    """Where each variable is set last."""
    used: set[str] = field(default_factory=set)
    """Variables that stand in others or in commands."""
    sourced: list[tuple[int, str]] = field(default_factory=list)
    """Line and path of scripts that it sources."""


def read(
    text: str,
    file: str,
    notes: Notes,
    positions: Mapping[str, str] | None = None,
    forced: Mapping[str, str] | None = None,
) -> Script:
    """Read a script. `positions`: its parameters; `forced`: variables that keep this value whatever it sets.

    Raises UsageError for what is no text of a script.
    """
    if "\0" in text or any("\ue000" <= sign <= "\ue002" for sign in text):
        raise UsageError(f"{file}: it is no text; give a shell script")
    source = values.mark_placeholders(text.replace("\r\n", "\n")).encode()
    root = tree(source, file)
    shell = _Shell(source, file, notes, positions or {}, forced or {})
    at = 0
    for node in root.children:
        if not _blank(source[at : node.start]):
            shell.not_read(node, "what stands before it is not understood")
        shell.statement(node)
        at = node.end
    if not _blank(source[at:]):
        add(notes.not_read, file, root.end_row, source[at:].decode("utf-8", "replace").strip(), _NOT_UNDERSTOOD)
    return shell.script


def _blank(text: bytes) -> bool:
    return not text.replace(b"\\\n", b"").strip()


def _whole(node: Node, source: bytes) -> bool:
    """Whether its pieces are all of it: what the grammar passes over must not be lost."""
    if not node.children or node.type in _WITH_GAPS:
        return True
    edges = [node.start, *(edge for part in node.children for edge in (part.start, part.end)), node.end]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return all(_blank(source[a:b]) for a, b in gaps) and all(_whole(part, source) for part in node.children)


class _Shell:
    """Follows a script's statements, one after the other."""

    def __init__(
        self, source: bytes, file: str, notes: Notes, positions: Mapping[str, str], forced: Mapping[str, str]
    ) -> None:
        self.script = Script(file)
        self.notes = notes
        self.forced = forced
        self.source = source
        self.expand = Expander(source, self.script.variables, self.script.arrays, positions, self.not_read, file)
        self.script.used = self.expand.used
        self.script.variables.update(forced)
        self.unset: dict[str, None] = {}
        self.comments: list[str] = []
        self.last_row = 0
        self.left = MAX_STATEMENTS
        self.snapshot: dict[str, str] | None = None
        self.unread = notes.not_read

    def text(self, node: Node) -> str:
        return self.source[node.start : node.end].decode("utf-8", "replace")

    def not_read(self, node: Node, why: str) -> None:
        add(self.unread, self.script.file, node.row, self.text(node).split("\n", 1)[0].rstrip("\\ "), why)

    def dropped(self, node: Node, why: str) -> None:
        add(self.notes.dropped, self.script.file, node.row, self.text(node), why)

    def statement(self, node: Node) -> None:
        """Follow one statement."""
        if not node.named and not node.broken:
            return
        if node.type == "comment":
            # one at the end of a line says nothing about the next
            if node.row != self.last_row:
                self.comments.append(values.shown(self.text(node)).lstrip("# "))
            return
        self.left -= 1
        if self.left < 0:
            raise UsageError(
                f"{self.script.file}: it has more than {MAX_STATEMENTS} statements; is it such a script?"
            )
        if node.broken or not _whole(node, self.source):
            self.not_read(node, _NOT_UNDERSTOOD)
        elif node.type in _NOT_FOLLOWED:
            self.not_read(node, _NOT_FOLLOWED[node.type])
        else:
            self.follow(node)
        self.last_row = node.end_row

    def follow(self, node: Node) -> None:
        match node.type:
            case "variable_assignment":
                self.assign(node, exported=False)
            case "variable_assignments":
                for part in node.of("variable_assignment"):
                    self.assign(part, exported=False)
            case "declaration_command":
                self.declare(node)
            case "unset_command":
                self.forget(node)
            case "command":
                self.command(node)
            case "redirected_statement":
                self.redirected(node)
            case "pipeline":
                first, *others = [c for c in node.children if c.named]
                self.statement(first)
                self.without_effect(others, "what follows the pipe is not read")
            case "list":
                self.chain(node)
            case "compound_statement":
                for part in node.children:
                    self.statement(part)
            case _:
                self.not_read(node, "this is not read")

    def assign(self, node: Node, exported: bool) -> None:
        """`NAME=value`, `NAME+=value`, `NAME=(…)`."""
        name, value = node.child("name"), node.child("value")
        if name is None or name.type != "variable_name":
            self.not_read(node, "one element of an array is not set")
            return
        added = any(c.type == "+=" for c in node.children)
        if value is not None and value.type == "array":
            words = self.expand.words([c for c in value.children if c.named and c.type != "comment"])
            before = self.script.arrays.get(self.text(name), ()) if added else ()
            self.script.arrays[self.text(name)] = (*before, *words)
            self.script.lines[self.text(name)] = node.row
            return
        told = self.expand.value(value) if value is not None else ""
        before_text = self.script.variables.get(self.text(name), "") if added else ""
        self.set(self.text(name), before_text + told, node.row, exported)

    def set(self, name: str, value: str, line: int, exported: bool) -> None:
        self.script.arrays.pop(name, None)
        self.script.variables[name] = self.forced.get(name, value)
        self.script.lines[name] = line
        if exported:
            self.script.exported[name] = line
        if name in self.script.exported:
            self.unset.pop(name, None)
            self.snapshot = None

    def declare(self, node: Node) -> None:
        """`export`, `declare`, `readonly`, `local`."""
        options = [self.text(c) for c in node.of("word") if self.text(c)[:1] in "-+"]
        exported = node.children[0].type == "export" or any("x" in o and o[0] == "-" for o in options)
        if any(set(o[1:]) - set("xrgia") or o[0] == "+" for o in options):
            self.not_read(node, "these options are not read")
            return
        for part in node.children[1:]:
            if part.type == "variable_assignment":
                self.assign(part, exported)
            elif part.type == "variable_name" or (part.type == "word" and self.text(part) not in options):
                name = self.text(part)
                if exported and name in self.script.variables:
                    self.set(name, self.script.variables[name], part.row, exported=True)
            elif part.named and part.type not in ("word", "comment"):
                for word in self.expand.words([part]):
                    name, equals, value = word.partition("=")
                    if equals and values.known(name):
                        self.set(name, value, part.row, exported)
                    else:
                        self.not_read(node, "it is no NAME=value")

    def forget(self, node: Node) -> None:
        """`unset`: also a word of the environment that the script has not set itself."""
        for part in node.children[1:]:
            name = self.text(part)
            if name.startswith("-") and name != "-v":
                self.not_read(node, "these options are not read")
                return
            if part.named and name != "-v":
                self.script.variables.pop(name, None)
                self.script.arrays.pop(name, None)
                self.script.exported.pop(name, None)
                self.expand.empty.add(name)
                self.unset[name] = None
                self.snapshot = None

    def command(self, node: Node) -> None:
        parts = [c for c in node.children if c.field in ("name", "argument")]
        own: dict[str, str] = {}
        for part in node.children:
            if part.type == "variable_assignment":
                name, value = part.child("name"), part.child("value")
                if name is not None and name.type == "variable_name":
                    own[self.text(name)] = self.expand.value(value) if value is not None else ""
        self.redirect([p for p in node.children if p.named and p not in parts and p.type != "variable_assignment"])
        # an echo is dropped, whatever is in it: so what is not read of a command is told by whoever takes it
        self.unread = []
        words = self.expand.words([c for p in parts for c in (p.children if p.type == "command_name" else (p,))])
        self.expand.tell_patterns([p for p in parts if p.type in ("word", "concatenation")])
        unread, self.unread = self.unread, self.notes.not_read
        if not words:
            self.not_read(node, "what it runs is not known")
            return
        if words[0] in ("source", ".") and len(words) == 2:
            self.script.sourced.append((node.row, words[1]))
            return
        unset = tuple(name for name in self.unset if name not in own)
        env = {**self.exports(), **own} if own else self.exports()
        self.script.commands.append(
            Command(
                node.row, self.text(node), tuple(words), env, unset, tuple(self.comments), tuple(own), tuple(unread)
            )
        )
        self.comments = []

    def exports(self) -> dict[str, str]:
        if self.snapshot is None:
            found = self.script.variables
            self.snapshot = {name: found[name] for name in self.script.exported if name in found}
        return self.snapshot

    def redirected(self, node: Node) -> None:
        for part in node.children:
            if part.field == "body":
                self.statement(part)
        self.redirect([part for part in node.children if part.field != "body"])

    def redirect(self, nodes: Sequence[Node]) -> None:
        outputs = [
            node for node in nodes if node.type == "file_redirect" and self.text(node).lstrip("0123456789&")[0] == ">"
        ]
        if outputs:
            text = " ".join(map(self.text, outputs))
            add(self.notes.dropped, self.script.file, outputs[0].row, text, "yrnode keeps the output in log_dir")
        for node in nodes:
            if node not in outputs and node.type != "comment":
                self.not_read(node, "input is not given to a component")

    def chain(self, node: Node) -> None:
        """`a && b` is followed as if both did well; of `a || b` the first."""
        operator = next((c.type for c in node.children if not c.named), "")
        first, *others = [c for c in node.children if c.named]
        if first.type in _NOT_FOLLOWED:
            self.not_read(node, _NOT_FOLLOWED[first.type])
            return
        self.statement(first)
        if operator == "||":
            self.without_effect(others, "what is done after a failure is not read")
            return
        for part in others:
            self.statement(part)

    def without_effect(self, nodes: Sequence[Node] | Iterable[Node], why: str) -> None:
        """Commands that are not followed; those that only show or end something are dropped."""
        for node in nodes:
            inner = next(iter(node.of("command")), node) if node.type == "redirected_statement" else node
            name = inner.child("name")
            if name is not None and self.text(name) in _WITHOUT_EFFECT and not node.broken:
                self.dropped(node, "yrnode keeps the output in log_dir, and ends and restarts by its own rules")
            else:
                self.not_read(node, why)
