"""A cluster file's values → YAML text that reads back as the same values."""

import io
import re
from collections.abc import Mapping
from typing import Any

from yrnode.config.yaml import KeyPath, stays_text

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?")
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./@%+=:-]*(?<!:)")
# What YAML 1.1 takes for booleans.
_OLD_WORDS = re.compile(r"y|n|yes|no|on|off", re.IGNORECASE)
# Values that are text to a program, and may stand there as they are.
_TEXTS = ("env", "args")


def yaml_text(data: Mapping[str, Any], comments: Mapping[KeyPath, str]) -> str:
    """`comments`: what stands at the end of a key's line."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.width = 1 << 20
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(_Plain, _plain)
    out = io.StringIO()
    yaml.dump(_styled(data, (), comments, False), out)
    return out.getvalue()


class _Plain(str):
    """Text that looks like a number or a boolean and is written without quotes: yrnode reads it as it is written."""


def _plain(representer: Any, value: _Plain) -> Any:
    kind = "bool" if value in ("true", "false") else "float" if "." in value else "int"
    return representer.represent_scalar(f"tag:yaml.org,2002:{kind}", str(value))


def _styled(value: Any, path: KeyPath, comments: Mapping[KeyPath, str], flow: bool) -> Any:
    """ruamel's own containers: short mappings and lists on one line, as in the guides' files."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, Mapping):
        inline = flow or _short(value, path, comments)
        found = CommentedMap()
        for key, item in value.items():
            name = key if _bare(key) else DoubleQuotedScalarString(key)
            found[name] = _styled(item, (*path, key), comments, inline)
        if inline:
            found.fa.set_flow_style()
        for key in value:
            comment = comments.get((*path, key))
            if comment is not None:
                found.yaml_add_eol_comment(comment, key)
        return found
    if isinstance(value, list | tuple):
        items = CommentedSeq(_styled(item, (*path, at), comments, True) for at, item in enumerate(value))
        items.fa.set_flow_style()
        return items
    if isinstance(value, str):
        if _text_there(path) and (_NUMBER.fullmatch(value) or (value in ("true", "false") and not _flag(path))):
            return _Plain(value)
        return value if _bare(value) else DoubleQuotedScalarString(value)
    return value


def _short(value: Mapping[str, Any], path: KeyPath, comments: Mapping[KeyPath, str]) -> bool:
    """Whether a mapping goes on one line."""
    if not path or any(known[: len(path)] == path and len(known) > len(path) for known in comments):
        return False
    flat = all(not isinstance(item, Mapping) or _short(item, (*path, key), comments) for key, item in value.items())
    return flat and path != ("nodes",) and len(str(dict(value))) < 100 and path[-1] not in _TEXTS


def _text_there(path: KeyPath) -> bool:
    """Whether a value of this key becomes text, whatever it looks like."""
    return len(path) > 1 and path[-2] in _TEXTS and "extra" not in path


def _flag(path: KeyPath) -> bool:
    """Whether `true` there would be a flag without a value."""
    return path[-2] == "args" and path[0] in ("groups", "router")


def _bare(text: str) -> bool:
    """Whether it may stand without quotes, anywhere."""
    return _PLAIN_TEXT.fullmatch(text) is not None and stays_text(text) and not _OLD_WORDS.fullmatch(text)
