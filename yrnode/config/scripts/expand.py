"""Words of a script → what bash would make of them, as far as that is known."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from yrnode.config.scripts import values
from yrnode.config.scripts.syntax import Node
from yrnode.model.errors import UsageError

_BUDGET = 4 * 1024 * 1024
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_OUTPUTS = ("command_substitution", "process_substitution", "arithmetic_expansion")

_UNSET = values.OPEN + values.VARIABLE

Fields = list[str]
"""What one piece becomes: usually one text; several where an unquoted value has blanks, or for an array."""


class Expander:
    """Expands words with the variables as they are at the moment."""

    def __init__(
        self,
        source: bytes,
        variables: Mapping[str, str],
        arrays: Mapping[str, tuple[str, ...]],
        positions: Mapping[str, str],
        not_read: Callable[[Node, str], None],
    ) -> None:
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
        found: list[str] = []
        for node in nodes:
            found += self.pay(self.split(node))
        return found

    def tell_patterns(self, nodes: Iterable[Node]) -> None:
        """What bash would look up among files, or write out: these words stand as they are."""
        for node in nodes:
            bare = [self.text(n) for n in (node.children or (node,)) if n.type in ("word", "{")]
            if any(sign in text for text in bare for sign in "*?") or "{" in bare:
                self.not_read(node, "patterns and braces are not expanded: it stands as it is")

    def value(self, node: Node) -> str:
        """The right side of an assignment: never several words."""
        return self.pay([" ".join(self.piece(node, quoted=True))])[0]

    def pay(self, made: list[str]) -> list[str]:
        self.left -= sum(map(len, made)) + len(made)
        if self.left < 0:
            raise UsageError("its variables grow to too much text; is it such a script?")
        return made

    def split(self, node: Node) -> list[str]:
        parts = node.children if node.type == "concatenation" else (node,)
        words: list[str] = []
        open_word = False
        for part in parts:
            fields = self.piece(part, quoted=False)
            if not fields:
                continue
            if open_word:
                words[-1] += fields[0]
                fields = fields[1:]
            words += fields
            open_word = True
        return words

    def piece(self, node: Node, quoted: bool) -> Fields:
        """One piece of a word. `quoted`: blanks in a variable's value split nothing."""
        match node.type:
            case "raw_string":
                return [self.text(node)[1:-1]]
            case "string":
                return self.string(node)
            case "translated_string":
                return [field for part in node.of("string") for field in self.string(part)]
            case "ansi_c_string":
                return [self.ansi(node)]
            case "simple_expansion" | "expansion":
                return self.variable(node, quoted)
            case "concatenation":
                return ["".join(" ".join(self.piece(part, quoted)) for part in node.children)]
            case kind if kind in _OUTPUTS:
                self.not_read(node, "what a command prints is not known")
                return [values.part(values.OUTPUT, _plain(self.text(node)))]
            case "array":
                self.not_read(node, "an array is not read here")
                return []
            case _:
                return [self.bare(node)]

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
        fields = [""]
        at = node.start + 1
        for part in node.children:
            if part.type not in ("simple_expansion", "expansion", *_OUTPUTS):
                continue
            fields[-1] += _unescaped(self.source[at : part.start].decode("utf-8", "replace"))
            first, *others = self.piece(part, quoted=True) or [""]
            fields[-1] += first
            fields += others
            at = part.end
        fields[-1] += _unescaped(self.source[at : node.end - 1].decode("utf-8", "replace"))
        return fields

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
            return [self.text(node)]
        name, after = inner[0], inner[1:]
        if name.type == "subscript":
            return self.elements(node, name, after)
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
            value = self.with_default("" if unset else value, operator, after[1:])
        return [value] if quoted else value.split()

    def with_default(self, value: str, operator: str, nodes: Sequence[Node]) -> str:
        if ("+" in operator) == (value == ""):
            return value
        return "".join(" ".join(self.piece(part, quoted=True)) for part in nodes)

    def elements(self, node: Node, name: Node, after: Sequence[Node]) -> Fields:
        array = next((self.text(c) for c in name.of("variable_name")), "")
        if after or self.text(name) not in (f"{array}[@]", f"{array}[*]"):
            return self.unreadable(node)
        self.used.add(array)
        return list(self.arrays.get(array, ()))

    def unreadable(self, node: Node) -> Fields:
        self.not_read(node, "this expansion is not read")
        return [values.part(values.OUTPUT, _plain(self.text(node)))]

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
