"""The tables of docs/cluster-file.md, from the cluster file's own schema.

`python docs/cluster_file.py` writes them anew; tests/docs holds the page and the schema together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yrnode.config.cluster import Cluster

PAGE = Path(__file__).with_name("cluster-file.md")
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"
_UNITS = {"ms|s|m|h": "duration", "B|KB|MB": "size"}
_SIMPLE = {"integer": "number", "number": "number", "boolean": "true or false"}
# text, number, true or false; and with lists and mappings beside
_KINDS = {3: "text, number or true/false", 5: "any value"}


def tables(schema: dict[str, Any] | None = None) -> str:
    """Every table of keys below a heading with its place in the file, as Markdown."""
    schema = Cluster.model_json_schema() if schema is None else schema
    return "\n".join(_part("the file itself", schema, schema["$defs"]))


def page(text: str) -> str:
    """The page with the tables that the schema has now."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}"


def _part(title: str, model: dict[str, Any], defs: dict[str, Any]) -> Iterator[str]:
    place = "" if title == "the file itself" else f"{title}."
    yield from (f"### {title if not place else f'`{title}`'}", "", _words(model), "")
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    below: list[tuple[str, dict[str, Any]]] = []
    required = model.get("required", ())
    for key, value in model["properties"].items():
        default = "required" if key in required else _default(value.get("default"))
        yield f"| `{key}` | {_type(value, defs)} | {default} | {_words(value)} |"
        for named, suffix in ((_ref(value), ""), (_ref(_inner(value)), ".NAME")):
            if named:
                below.append((f"{place}{key}{suffix}", defs[named]))
    yield ""
    for name, part in below:
        yield from _part(name, part, defs)


def _ref(value: Any) -> str:
    """The model that a key's value is, or may be."""
    if not isinstance(value, dict):
        return ""
    found = next((v["$ref"] for v in (value, *value.get("anyOf", ())) if "$ref" in v), "")
    return str(found).rpartition("/")[2]


def _inner(value: dict[str, Any]) -> Any:
    """What each name of a mapping stands for."""
    patterns = value.get("patternProperties") or {"": value.get("additionalProperties")}
    return next(iter(patterns.values()))


def _words(value: dict[str, Any]) -> str:
    return " ".join(str(value.get("description", "")).split()).replace("|", "\\|")


def _default(value: Any) -> str:
    if value in (None, {}, [], "") or (isinstance(value, dict) and not any(value.values())):
        return "none"
    if isinstance(value, dict):
        return "see below"
    if isinstance(value, list):
        value = " ".join(map(str, value))
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(value: dict[str, Any], defs: dict[str, Any]) -> str:
    if _ref(value):
        return "mapping (below)"
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_type(v, defs) for v in value["anyOf"] if v.get("type") != "null"))
    if "enum" in value:
        return ", ".join(f"`{word}`" for word in value["enum"])
    kind = value.get("type", "any value")
    if isinstance(kind, list):
        return _KINDS[len(kind)]
    if kind == "array":
        return f"list of {_type(value.get('items', {}), defs)}"
    if kind == "object":
        of = _inner(value)
        inner = _type(of, defs) if isinstance(of, dict) and of else "any value"
        return f"mapping of names to {inner}"
    if kind == "string":
        if value.get("format") == "path":
            return "path"
        pattern = value.get("pattern", "")
        return next((word for units, word in _UNITS.items() if units in pattern), "text")
    bounds = [f"{word} {value[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in value]
    return " ".join([_SIMPLE.get(kind, kind), *bounds])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
