"""Words of a script → what bash would make of them, as far as that is known."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from yrnode.config.scripts import values
from yrnode.config.scripts.syntax import Node
from yrnode.model.errors import UsageError

_BUDGET = 4 * 1024 * 1024
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_OUTPUTS = ("command_substitution", "process_substitution", "arithmetic_expansion")

_UNSET = values.OPEN + values.VARIABLE

Fields = list[tuple[str, bool]]
"""What one piece becomes: usually one text; several where an unquoted value has blanks, or for an array. With each,
whether it is a word even when it is empty, as `""` is."""


class Expander:
    """Expands words with the variables as they are at the moment."""

    def __init__(
        self,
        source: bytes,
        variables: Mapping[str, str],
        arrays: Mapping[str, tuple[str, ...]],
        positions: Mapping[str, str],
        not_read: Callable[[Node, str], None],
        file: str,
    ) -> None:
        self.file = file
        self.source, self.variables, self.arrays = source, variables, arrays
        self.positions, self.not_read = positions, not_read
        self.used: set[str] = set()
        self.empty: set[str] = set()
        """Variables that the script has unset: nothing stands for them."""
        self.left = _BUDGET

    def text(self, node: Node) -> str:
        return self.source[node.start : node.end].decode("utf-8", "replace")

    def words(self, nodes: Iterable[Node]) -> list[str]:
        """The words of a command, or of an array."""
        together: list[list[Node]] = []
        for node in nodes:
            # the grammar sees two words where a backslash at a line's end joins them
            gap = self.source[together[-1][-1].end : node.start] if together else b" "
            if not gap.replace(b"\\\n", b""):
                together[-1].append(node)
            else:
                together.append([node])
        return [word for some in together for word in self.pay(self.split(some))]

    def tell_patterns(self, nodes: Iterable[Node]) -> None:
        """What bash would look up among files, or write out: these words stand as they are."""
        for node in nodes:
            bare = [self.text(n) for n in (node.children or (node,)) if n.type in ("word", "{")]
            if any(sign in text for text in bare for sign in "*?") or "{" in bare:
                self.not_read(node, "patterns and braces are not expanded: it stands as it is")

    def value(self, node: Node) -> str:
        """The right side of an assignment: never several words."""
        return self.pay(["".join(_joined(self.piece(part, quoted=True)) for part in _parts(node))])[0]

    def pay(self, made: list[str]) -> list[str]:
        self.left -= sum(map(len, made)) + len(made)
        if self.left < 0:
            raise UsageError(f"{self.file}: its variables grow to too much text; is it such a script?")
        return made

    def split(self, nodes: Sequence[Node]) -> list[str]:
        parts = [part for node in nodes for part in _parts(node)]
        return [text for text, solid in self.fields(parts, quoted=False) if text or solid]

    def fields(self, parts: Sequence[Node], quoted: bool) -> Fields:
        """Pieces that stand together: the last field of one and the first of the next are one."""
        found: Fields = []
        for part in parts:
            first, *others = self.piece(part, quoted) or [("", False)]
            if found:
                text, solid = found.pop()
                first = text + first[0], solid or first[1]
            found += [first, *others]
        return found

    def piece(self, node: Node, quoted: bool) -> Fields:
        """One piece of a word. `quoted`: blanks in a variable's value split nothing."""
        match node.type:
            case "raw_string":
                return [(self.text(node)[1:-1], True)]
            case "string":
                return self.string(node)
            case "translated_string":
                return [field for part in node.of("string") for field in self.string(part)]
            case "ansi_c_string":
                return [(self.ansi(node), True)]
            case "simple_expansion" | "expansion":
                return self.variable(node, quoted)
            case "concatenation":
                return self.fields(node.children, quoted)
            case kind if kind in _OUTPUTS:
                self.not_read(node, "what a command prints is not known")
                return [(values.part(values.OUTPUT, _plain(self.text(node))), True)]
            case "array":
                self.not_read(node, "an array is not read here")
                return []
            case _:
                return [(self.bare(node), True)]

    def bare(self, node: Node) -> str:
        """Text without quotes."""
        text = self.text(node)
        if text == "~" or text.startswith("~/"):
            return self.named("HOME") + text[1:]
        if "\\" not in text:
            return text
        out, rest = [], iter(text)
        for sign in rest:
            # a backslash at the end of a line joins two lines
            taken = next(rest, "") if sign == "\\" else sign
            out.append("" if sign == "\\" and taken == "\n" else taken)
        return "".join(out)

    def string(self, node: Node) -> Fields:
        """Text in double quotes. The gaps between the pieces that the grammar names are text too."""
        fields: Fields = [("", False)]
        at = node.start + 1
        empty_array = False
        for part in node.children:
            if part.type not in ("simple_expansion", "expansion", *_OUTPUTS):
                continue
            before = _unescaped(self.source[at : part.start].decode("utf-8", "replace"))
            made = self.piece(part, quoted=True)
            empty_array = empty_array or not made
            first, *others = made or [("", False)]
            fields = [*fields[:-1], (fields[-1][0] + before + first[0], True), *others]
            at = part.end
        end = _unescaped(self.source[at : node.end - 1].decode("utf-8", "replace"))
        last = fields[-1][0] + end
        # of "${A[@]}" without elements nothing is left, not even an empty word
        return [*fields[:-1], (last, bool(last) or not empty_array)]

    def ansi(self, node: Node) -> str:
        out, rest = [], iter(self.text(node)[2:-1])
        for sign in rest:
            if sign != "\\":
                out.append(sign)
                continue
            code = next(rest, "")
            if code not in _ESCAPES:
                self.not_read(node, "this escape is not read")
            out.append(_ESCAPES.get(code, "\\" + code))
        return "".join(out)

    def variable(self, node: Node, quoted: bool) -> Fields:
        """`$X`, `${X}`, `${X:-default}`, `$4`, `${X[@]}`."""
        inner = [c for c in node.children if c.type not in ("$", "${", "}")]
        if not inner:
            return [(self.text(node), True)]
        name, after = inner[0], inner[1:]
        if name.type == "subscript":
            return self.elements(node, name, after, quoted)
        operator = after[0].type if after else ""
        if name.type not in ("variable_name", "special_variable_name", "word") or (
            after and operator not in (":-", "-", ":=", "=", ":+", "+")
        ):
            return self.unreadable(node)
        word = self.text(name)
        if not (word.isdecimal() or name.type == "variable_name"):
            return self.unreadable(node)
        value = self.named(word)
        if after:
            unset = word not in self.positions if word.isdecimal() else value.startswith(_UNSET)
            value = "" if unset else value
            if ("+" in operator) != (value == "" and (unset or operator[0] == ":" or word in self.empty)):
                return self.default(after[1:], quoted)
            value = "" if "+" in operator else value
        return [(value, quoted)] if quoted else _broken(value)

    def default(self, nodes: Sequence[Node], quoted: bool) -> Fields:
        """What stands in `${X:-…}`."""
        made = self.fields(nodes, quoted)
        return [(_joined(made), True)] if quoted else made

    def elements(self, node: Node, name: Node, after: Sequence[Node], quoted: bool) -> Fields:
        array = next((self.text(c) for c in name.of("variable_name")), "")
        if after or self.text(name) not in (f"{array}[@]", f"{array}[*]"):
            return self.unreadable(node)
        self.used.add(array)
        found = self.arrays.get(array, ())
        return [(word, True) for word in found] if quoted else [part for word in found for part in _broken(word)]

    def unreadable(self, node: Node) -> Fields:
        self.not_read(node, "this expansion is not read")
        return [(values.part(values.OUTPUT, _plain(self.text(node))), True)]

    def named(self, name: str) -> str:
        """The value of a variable or parameter."""
        self.used.add(name)
        if name.isdecimal():
            return self.positions.get(name, values.part(values.POSITION, name))
        if name in self.arrays:
            return next(iter(self.arrays[name]), "")
        if name in self.empty and name not in self.variables:
            return ""
        return self.variables.get(name, values.part(values.VARIABLE, name))


def _parts(node: Node) -> tuple[Node, ...]:
    return node.children if node.type == "concatenation" else (node,)


def _joined(fields: Fields) -> str:
    return " ".join(text for text, _ in fields)


def _broken(value: str) -> Fields:
    """A value without quotes: split at its blanks; one at an end parts it from what stands there."""
    blank = [("", False)]
    words = [(word, True) for word in values.words(value)]
    head, tail = value[:1].isspace(), value[-1:].isspace()
    return [*(blank if head else []), *words, *(blank if tail else [])] or blank


def _unescaped(text: str) -> str:
    """Text in double quotes: a backslash means something only before $ ` \" \\ and a line's end."""
    out, rest = [], iter(text)
    for sign in rest:
        if sign != "\\":
            out.append(sign)
            continue
        follows = next(rest, "")
        out.append(follows if follows in ("$", "`", '"', "\\") else "" if follows == "\n" else sign + follows)
    return "".join(out)


def _plain(text: str) -> str:
    return text.replace(values.OPEN, "").replace(values.CLOSE, "")
