"""Every key of the schema, spoilt in each way: one line that says where it is, and what a misspelling means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from yrnode.config.cluster import Cluster
from yrnode.config.load import validate
from yrnode.config.yaml import KeyPath, dotted, parse
from yrnode.model.errors import UsageError

SCHEMA = Cluster.model_json_schema()
# Names for what the file's author names, by the key that holds them.
NAMES = {"nodes": "n0", "groups": "serve", "ranks": "n0", "devices": "n0", "checks": "rank.canary", "env": "A"}
# A good value of each required key.
GOOD: dict[str, Any] = {
    "cluster": "demo",
    "nodes": {"n0": {"address": "10.0.0.1"}},
    "groups": {"serve": {"ranks": {"n0": 1}, "model": "m"}},
    "address": "10.0.0.1",
    "ranks": {"n0": 1},
    "model": "m",
    "node": "n0",
    "ca": "ca.pem",
    "user": "root",
    "password_file": "/p",
}


class Key(NamedTuple):
    """`named`: a key of ours, which can be misspelt; else the author's own word."""

    path: KeyPath
    schema: dict[str, Any]
    named: bool
    optional: bool


def resolved(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Without references and null; whether it may be null."""
    if "$ref" in schema:
        return resolved(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]])
    rest = [part for part in schema.get("anyOf", []) if part.get("type") != "null"]
    if len(rest) == 1:
        return resolved(rest[0])[0], True
    return schema, False


def keys(schema: dict[str, Any], path: KeyPath = ()) -> Iterator[Key]:
    for name, part in schema.get("properties", {}).items():
        inner, optional = resolved(part)
        yield Key((*path, name), inner, True, optional)
        yield from keys(inner, (*path, name))
    values = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    for value in values:
        # True: anything at all, which cannot be wrong
        if isinstance(value, dict):
            name = NAMES.get(str(path[-1]), "flag")
            inner, optional = resolved(value)
            yield Key((*path, name), inner, False, optional)
            yield from keys(inner, (*path, name))


KEYS = list(keys(SCHEMA))


def document(path: KeyPath, value: Any) -> dict[str, Any]:
    """A file with `value` at `path`, and around it no more than must be there."""
    data: dict[str, Any] = {name: json.loads(json.dumps(GOOD[name])) for name in SCHEMA["required"]}
    at, schema = data, SCHEMA
    for name in path[:-1]:
        schema = below(schema, name)
        at = at.setdefault(name, {})
        for needed in schema.get("required", ()):
            at.setdefault(needed, json.loads(json.dumps(GOOD[needed])))
    at[path[-1]] = value
    return data


def below(schema: dict[str, Any], name: str | int) -> dict[str, Any]:
    if name in schema.get("properties", {}):
        return resolved(schema["properties"][name])[0]
    values = [v for v in (schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()) if v]
    return resolved(values[0])[0]


def rows(data: dict[str, Any], path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Block YAML, a key on a line each."""
    for name, value in data.items():
        here = (*path, name)
        if isinstance(value, dict) and value:
            yield here, f"{'  ' * len(path)}{name}:"
            yield from rows(value, here)
        else:
            text = "" if value is None else f" {json.dumps(value)}"
            yield here, f"{'  ' * len(path)}{name}:{text}"


def complaints(data: dict[str, Any], path: KeyPath) -> tuple[str, list[str]]:
    """How the fault's line must begin, and the lines that there are."""
    written = list(rows(data))
    line = next(at for at, (here, _) in enumerate(written, 1) if here == path)
    try:
        validate(parse("\n".join(row for _, row in written).encode(), "c.yaml"), Path("/etc/yrnode"))
    except UsageError as e:
        return f"c.yaml:{line}: {dotted(path)}", list(e.lines)
    return f"c.yaml:{line}: {dotted(path)}", []


def wrong_types(schema: dict[str, Any]) -> Iterator[Any]:
    kinds = schema.get("type", [part.get("type") for part in schema.get("anyOf", [])])
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    samples = {"object": {"x": 1}, "array": [[]], "string": "?", "integer": 7, "number": 1.5, "boolean": True}
    for kind, sample in samples.items():
        # a number may be a whole one, or what a list takes
        if kind in kinds or (kind == "integer" and "number" in kinds):
            continue
        yield sample


def wrong_values(schema: dict[str, Any]) -> Iterator[Any]:
    if "enum" in schema:
        yield "nonsense"
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    if "pattern" in schema:
        yield "?! /"
    if "examples" in schema:
        # a duration or a size, without its unit
        yield 5
    if "maxLength" in schema:
        yield "a" * (schema["maxLength"] + 1)
    if schema.get("minLength"):
        yield ""
    if schema.get("minProperties"):
        yield {}
    if schema.get("format") == "ipv4":
        yield "1.2.3"
    if schema.get("format") == "path":
        yield "~/x"
    for part in schema.get("anyOf", []):
        if part.get("minItems"):
            yield []
    if schema.get("type") == "array":
        items, _ = resolved(schema["items"])
        yield from ([value] for value in (*wrong_values(items), *wrong_types(items)))


def ids(key: Key) -> str:
    return dotted(key.path)


@pytest.mark.parametrize("key", KEYS, ids=ids)
def test_a_wrong_type(key: Key) -> None:
    for value in wrong_types(key.schema):
        begin, lines = complaints(document(key.path, value), key.path)
        assert [line.startswith(begin) for line in lines] == [True], (value, lines)


@pytest.mark.parametrize("key", [key for key in KEYS if any(True for _ in wrong_values(key.schema))], ids=ids)
def test_a_wrong_value(key: Key) -> None:
    for value in wrong_values(key.schema):
        begin, lines = complaints(document(key.path, value), key.path)
        assert [line.startswith(begin) for line in lines] == [True], (value, lines)


@pytest.mark.parametrize("key", KEYS, ids=ids)
def test_no_value(key: Key) -> None:
    begin, lines = complaints(document(key.path, None), key.path)
    assert [line.startswith(f"{begin}: it has no value; write ") for line in lines] == [True], lines


@pytest.mark.parametrize("key", [key for key in KEYS if key.named], ids=ids)
def test_a_misspelt_key(key: Key) -> None:
    data, name = document(key.path, "?"), str(key.path[-1])
    at: Any = data
    for part in key.path[:-1]:
        at = at[part]
    wrong = name + name[-1]
    at[wrong] = at.pop(name)
    begin, lines = complaints(data, (*key.path[:-1], wrong))
    assert lines == [f"{begin}: this key is unknown; did you mean {name}?"]


def test_every_model_is_walked() -> None:
    walked = {name for key in KEYS for name in key.schema.get("properties", {})} | set(SCHEMA["properties"])
    assert walked == {name for part in (SCHEMA, *SCHEMA["$defs"].values()) for name in part.get("properties", {})}
    assert len(KEYS) > 100
