"""Values of a script of which a part is not known: a placeholder, an unset variable, `$4`, the output of a command.

The unknown part stands in the value between two marks, so that an address such as `<IP>:18481` keeps its port.
"""

import re
from collections.abc import Callable, Mapping

OPEN, CLOSE = "\ue000", "\ue001"
_BLANK = "\ue002"
PLACEHOLDER, VARIABLE, POSITION, OUTPUT = "p", "v", "n", "s"
"""Kinds of unknown parts: `<IP_ADDRESS>`; a variable that the script does not set; `$4`; a command's output."""

_PART = re.compile(f"{OPEN}([a-z])([^{OPEN}{CLOSE}]*){CLOSE}")
_WORD = re.compile(f"(?:{OPEN}[^{CLOSE}]*{CLOSE}|[^ \\t\\n])+")
_ANGLES = re.compile(r"(?<!<)<([^\s<>|&;$()\"'`\\]{1,80}(?: [^\s<>|&;$()\"'`\\]{1,80}){0,4})>")
_ASKS = re.compile(
    r"[\u3000-\u9fff\uff00-\uffef]"
    r"|(?:^|[-_. ])(?:your|ips?|addr|address|port|path|name|nic|host|node|dir|model)\d*(?:$|[-_. ])",
    re.IGNORECASE,
)


def part(kind: str, text: str) -> str:
    """An unknown part of a value."""
    return f"{OPEN}{kind}{text}{CLOSE}"


def known(value: str) -> bool:
    """Whether all of the value is known."""
    return OPEN not in value


def unknown_variables(value: str) -> list[str]:
    """The variables in it that the script does not set."""
    return [text for kind, text in _PART.findall(value) if kind == VARIABLE]


def only_variables(value: str) -> bool:
    """Whether nothing but variables is unknown in it."""
    return all(kind == VARIABLE for kind, _ in _PART.findall(value))


def needs_positions(value: str) -> bool:
    """Whether it stands on the script's own parameters, such as `$4`."""
    return any(kind == POSITION for kind, _ in _PART.findall(value))


def words(value: str) -> list[str]:
    """The value split at blanks, but for those in unknown parts."""
    return _WORD.findall(value)


def fill(value: str, positions: Mapping[str, str]) -> str:
    """The value with its parameters put in, as far as they are given."""

    def put(match: re.Match[str]) -> str:
        return positions.get(match[2], match[0]) if match[1] == POSITION else match[0]

    return _PART.sub(put, value)


def shown(value: str) -> str:
    """The value as a person wrote it."""
    return _PART.sub(_written, value).replace(_BLANK, " ")


def _written(match: re.Match[str]) -> str:
    kind, text = match[1], match[2]
    forms: dict[str, Callable[[str], str]] = {
        PLACEHOLDER: "<{}>".format,
        VARIABLE: "${{{}}}".format,
        POSITION: "${}".format,
    }
    return forms.get(kind, str)(text)


def mark_placeholders(text: str) -> str:
    """A script's text in which `<IP_ADDRESS>` is no redirection: bash would take it for two."""
    return _ANGLES.sub(lambda m: part(PLACEHOLDER, m[1].replace(" ", _BLANK)) if _ASKS.search(m[1]) else m[0], text)
