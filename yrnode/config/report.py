"""pydantic's findings → one line each for a person: file, line, key, and what to write."""

import difflib
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from yrnode.config.cluster import CHECK_PATTERN, KINDS, NIC_PATTERN, Cluster
from yrnode.config.datasystem import LIST_PATTERN
from yrnode.config.fields import NAME_PATTERN
from yrnode.config.router import URL_PATH_PATTERN
from yrnode.config.yaml import Document, KeyPath


def meant(word: object, words: Iterable[str]) -> str:
    """`did you mean x?` for the nearest of `words`; where none is near, the first dozen of them."""
    known = list(words)
    near = _nearest(word, known)
    if near:
        return f"did you mean {near}?"
    return f"known: {', '.join(known[:12])}{', …' if len(known) > 12 else ''}"


def _nearest(word: object, words: list[str]) -> str:
    return next(iter(difflib.get_close_matches(str(word), words, n=1, cutoff=0.6)), "")


def lines_of(error: ValidationError | None, document: Document) -> list[str]:
    """One line for each finding, in the order of the file; keys without a value, which pydantic may let pass, too."""
    items = error.errors(include_url=False) if error is not None else []
    found: list[tuple[int, bool, str]] = []
    # a misspelled key is unknown and missing: the spelling says it all
    misspelt = {_meant_key(item["loc"]) for item in items if item["type"] == "extra_forbidden"}
    for item in items:
        path: KeyPath = tuple(part for part in item["loc"] if part != "[key]")
        if item["type"] != "missing" or path not in misspelt:
            found.append((document.line(path), item["type"] == "missing", document.fault(path, _advice(path, item))))
    for path, model in _empty(document.data, Cluster, ()):
        found.append((document.line(path), False, document.fault(path, _nothing(model))))
    return [line for *_, line in sorted(dict.fromkeys(found), key=lambda row: row[:2])]


def _meant_key(path: KeyPath) -> KeyPath:
    near = _nearest(path[-1], _fields(path[:-1]))
    return (*path[:-1], near) if near else ()


def _empty(value: object, annotation: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Keys of ours that are written without a value where they may be left out, each with what it takes."""
    plain = _plain(annotation)
    if not isinstance(value, dict):
        return
    if isinstance(plain, type) and issubclass(plain, BaseModel):
        for name, field in plain.model_fields.items():
            if name not in value:
                continue
            if value[name] is None and field.default is None:
                yield (*path, name), _plain(field.annotation)
            yield from _empty(value[name], field.annotation, (*path, name))
    elif typing.get_origin(plain) is dict:
        for name, inner in value.items():
            yield from _empty(inner, typing.get_args(plain)[-1], (*path, name))


def _nothing(model: Any) -> str:
    fields = model.model_fields.values() if isinstance(model, type) and issubclass(model, BaseModel) else ()
    if fields and not any(field.is_required() for field in fields):
        return "it has no value; write {} for its defaults, or remove the key"
    return "it has no value; write one or remove the key"


def _advice(path: KeyPath, item: Any) -> str:
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    if kind == "missing":
        return f"it is missing; write {path[-1]}: …"
    if kind == "extra_forbidden":
        return f"this key is unknown; {meant(path[-1], _fields(path[:-1]))}"
    if value is None and not (kind == "value_error" and str(context["error"]).startswith("it has no value")):
        return _nothing(None)
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        allowed = context["expected"].replace("'", "").replace(" or ", ", ")
        return f"{shown(value)} is not known; write one of {allowed}"
    if kind == "too_short":
        return "it is empty; add at least one"
    if kind in ("greater_than_equal", "less_than_equal"):
        return f"{shown(value)} is out of range; write {_range(path, context)}"
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return f"{shown(value)} does not fit; {_PATTERNS.get(pattern, f'write text like {pattern}')}"
    if kind == "string_too_long":
        return f"{shown(value)} is too long; write at most {context['max_length']} characters"
    if kind == "string_too_short":
        return "it is empty; write a value"
    return f"{shown(value)} is {_kind(value)}; {_WANTED.get(kind, item['msg'])}"


_PATTERNS = {
    NAME_PATTERN: "write small letters, digits, - _ or ., and begin with a letter or digit",
    LIST_PATTERN: "write numbers such as 0-7 or 0,2",
    URL_PATH_PATTERN: "write a path such as /health",
    NIC_PATTERN: "write the name of a network interface, such as eth0",
    CHECK_PATTERN: f"write a kind of component ({', '.join(KINDS)}) and a check, such as rank.canary",
}
_WANTED = {
    "int_type": "write a whole number without quotes",
    "float_type": "write a number",
    "bool_type": "write true or false",
    "string_type": "write text, in quotes if it looks like a number",
    "dict_type": "write a mapping, key: value",
    "model_type": "write a mapping, key: value",
    "model_attributes_type": "write a mapping, key: value",
    "tuple_type": "write a list, [a, b]",
}


def shown(value: object) -> str:
    """A value in a few words, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return "this value"
    text = " ".join(str(getattr(value, "text", value)).split())
    text = text if len(text) <= 60 else text[:57] + "…"
    return f'"{text}"' if isinstance(value, str) else text


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    names = {str: "text", int: "a number", float: "a number", dict: "a mapping", list: "a list", tuple: "a list"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "no value")


def _range(path: KeyPath, context: Any) -> str:
    if path and str(path[-1]).endswith("port"):
        return "a port from 1 to 65535"
    return f"{context['ge']} or more" if "ge" in context else f"{context['le']} or less"


def _fields(path: KeyPath) -> list[str]:
    """The keys that the model at this path knows."""
    found: Any = Cluster
    for part in path:
        found = _plain(found)
        if isinstance(found, type) and issubclass(found, BaseModel):
            found = found.model_fields[str(part)].annotation
        else:
            found = typing.get_args(found)[-1]
    found = _plain(found)
    return list(found.model_fields)


def _plain(annotation: Any) -> Any:
    """Without Annotated and `| None`."""
    while True:
        origin = typing.get_origin(annotation)
        if origin is typing.Annotated:
            annotation = typing.get_args(annotation)[0]
        elif origin in (typing.Union, types.UnionType):
            annotation = next(part for part in typing.get_args(annotation) if part is not type(None))
        else:
            return annotation
