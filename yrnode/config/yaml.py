"""YAML text → plain values, with the line of every key.

YAML 1.2: `yes` and `on` are text, `012` is twelve. No tags. Aliases and `<<` work; what they unfold to is bounded.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yrnode.model.errors import UsageError

KeyPath = tuple[str | int, ...]

MAX_BYTES = 256 * 1024
MAX_VALUES = 20_000
MAX_DEPTH = 40

_CORE = "tag:yaml.org,2002:"
_KNOWN_TAGS = {_CORE + name for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "map", "seq")}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class WrittenInt(int):
    """A whole number that keeps how it was written: an environment variable gets `0x10`, not `16`."""

    text: str


class WrittenFloat(float):
    """A decimal number that keeps how it was written: `0.90` stays `0.90`."""

    text: str


@dataclass(frozen=True)
class Document:
    """A file's values, and the line (from 1) of each by its path of keys and list positions."""

    file: str
    data: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """The line of this key, or of the nearest one around it that is written down."""
        while path and path not in self.lines:
            # A flag may be written with _ where its name has -.
            spelled = (*path[:-1], str(path[-1]).replace("-", "_"))
            path = spelled if spelled in self.lines else path[:-1]
        return self.lines.get(path, 1)

    def fault(self, path: KeyPath, text: str) -> str:
        """One line for a person: file, line, key path, and `text`."""
        where = f"{self.file}:{self.line(path)}"
        return f"{where}: {dotted(path)}: {text}" if path else f"{where}: {text}"


def dotted(path: KeyPath) -> str:
    """`("groups", "serve", "restart_with", 0)` → `groups.serve.restart_with[0]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def stays_text(text: str) -> bool:
    """Whether a value is read as this text when it is written without quotes."""
    return text not in _WORDS and not _INT.fullmatch(text) and not _FLOAT.fullmatch(text)


def parse(content: bytes, file: str) -> Document:
    """Read one YAML document whose top is a mapping. Raises UsageError with one line for each fault."""
    if len(content) > MAX_BYTES:
        raise UsageError(
            f"{file}: the file has more than {MAX_BYTES // 1024} KB; is it a cluster file? Make it smaller"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{file}:{line}: the text is not UTF-8; save the file as UTF-8") from None
    node = _compose(text, file)
    if node is None or (node.value == "" and node.style is None):
        raise UsageError(f"{file}:1: the file is empty; write cluster, nodes and groups")
    walk = _Walk(file)
    data = walk.value(node, (), 0)
    if walk.faults:
        raise UsageError(*walk.faults)
    if not isinstance(data, dict):
        raise UsageError(
            f"{file}:{node.start_mark.line + 1}: the file is no mapping; write keys such as cluster: demo"
        )
    return Document(file, data, walk.lines)


def _compose(text: str, file: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    yaml = YAML(typ="safe", pure=True)
    try:
        return yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = (mark.line if mark else 0) + 1
        raise UsageError(f"{file}:{line}: broken YAML: {_advice(str(error.problem), error, text, line)}") from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UsageError(f"{file}:{line}: a control character is in the text; remove it") from None
    except RecursionError:
        raise UsageError(f"{file}: the values are nested too deeply; write them flatter") from None
    except (YAMLError, ValueError) as error:
        first = (str(error).splitlines() or ["unknown"])[0]
        raise UsageError(f"{file}: broken YAML: {first}; check the quotes and the indentation") from None


def _advice(problem: str, error: Any, text: str, line: int) -> str:
    rows = text.splitlines()
    row = rows[line - 1] if 0 < line <= len(rows) else ""
    if "\t" in row[: len(row) - len(row.lstrip())] or "'\\t'" in problem:
        return "a tab indents this line; use spaces"
    if "single document" in (error.context or ""):
        return "a second document begins here; keep one document in the file"
    if "undefined alias" in problem:
        return f"{problem}; define it with & above this line"
    if "scanning a quoted scalar" in (error.context or ""):
        return f"a quote opened on line {error.context_mark.line + 1} is not closed; close it"
    if error.context and error.context_mark and "flow" in error.context:
        return f"{problem}; close the bracket opened on line {error.context_mark.line + 1}"
    if "mapping values are not allowed" in problem:
        return "a second ': ' on this line, or wrong indentation; put the value in quotes or fix the indentation"
    return f"{problem}; check the indentation and the quotes of this line"


class _Walk:
    """Nodes → values. Collects faults instead of raising, so that a person sees all of them at once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.faults: list[str] = []
        self.left = MAX_VALUES

    def fault(self, node: Any, text: str) -> None:
        self.faults.append(f"{self.file}:{node.start_mark.line + 1}: {text}")

    def value(self, node: Any, path: KeyPath, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth > MAX_DEPTH:
            if not any("unfold" in fault for fault in self.faults):
                self.fault(node, "values or aliases unfold to too much; write it flatter, with fewer aliases")
            return None
        self.lines.setdefault(path, node.start_mark.line + 1)
        tag = str(node.tag)
        if tag not in _KNOWN_TAGS:
            self.fault(node, f"the tag {tag.replace(_CORE, '!!')} is not allowed; write the plain value")
            return None
        if isinstance(node.value, str):
            return self.scalar(node)
        if tag.endswith(":seq"):
            return [self.value(item, (*path, at), depth + 1) for at, item in enumerate(node.value)]
        return self.mapping(node, path, depth)

    def mapping(self, node: Any, path: KeyPath, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        first: dict[str, int] = {}
        merged: list[Any] = []
        for key, item in node.value:
            line = key.start_mark.line + 1
            if key.tag == _CORE + "merge":
                merged += item.value if str(item.tag).endswith(":seq") else [item]
                continue
            if not isinstance(key.value, str) or not key.value:
                self.fault(key, "a key is no text; write a name, then a colon")
                continue
            name = key.value
            here = (*path, name)
            if name in first:
                self.fault(key, f"{dotted(here)} is written twice, on lines {first[name]} and {line}; keep one")
                continue
            first[name] = line
            self.lines[here] = line
            out[name] = self.value(item, here, depth + 1)
        for source in merged:
            if not str(source.tag).endswith(":map"):
                self.fault(source, "<< takes a mapping; write << : *name of one")
                continue
            part = self.mapping_apart(source, depth)
            for name, (value, lines) in part.items():
                if name not in out:
                    out[name] = value
                    self.lines.update({(*path, *below): line for below, line in lines.items()})
        return out

    def mapping_apart(self, node: Any, depth: int) -> dict[str, tuple[Any, dict[KeyPath, int]]]:
        """A merged mapping's entries, each with its lines by path below the mapping."""
        kept, self.lines = self.lines, {}
        values = self.value(node, (), depth + 1) or {}
        lines, self.lines = self.lines, kept
        return {
            name: (value, {p: line for p, line in lines.items() if p[:1] == (name,)})
            for name, value in values.items()
        }

    def scalar(self, node: Any) -> Any:
        text: str = node.value
        if node.style is not None or node.tag == _CORE + "str":
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text) and len(text) < 40:
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            whole = WrittenInt(text, base) if base != 10 else WrittenInt(text)
            whole.text = text
            return whole
        if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
            number = WrittenFloat(text)
            number.text = text
            return number
        return text
