"""The kinds of values that keys of the cluster file take."""

import ipaddress
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from yrnode.model import units

T = TypeVar("T")

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]*$"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# The mark of our own processes, and what etcd reads beside its flags and then refuses to start on.
_RESERVED = ("YRNODE_", "ETCD_", "ETCDCTL_")


class Model(BaseModel):
    """A mapping of the cluster file: unknown keys are refused, nothing is guessed, nothing changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def seconds(default: str) -> Any:
    """The default of a `Duration` key, shown in the schema as it is written."""
    return Field(units.parse_duration(default), validate_default=False, json_schema_extra={"default": default})


def size(default: str) -> Any:
    """The default of a `Size` key, shown in the schema as it is written."""
    return Field(units.parse_size(default), validate_default=False, json_schema_extra={"default": default})


def text_of(value: object) -> str:
    """A scalar as text: `true` and `false` in small letters, numbers as they were written. ValueError for others."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(getattr(value, "text", value))
    if value is None:
        raise ValueError('it has no value; write one, or "" for an empty one')
    raise ValueError("it takes one value; write text, a number, true or false")


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _duration(value: object) -> float:
    return value if type(value) is float else units.parse_duration(value)


def _size(value: object) -> int:
    return value if type(value) is int else units.parse_size(value)


def _path(value: object, info: ValidationInfo) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("it is no path; write one such as /var/lib/yrnode")
    return Path(resolved(value, (info.context or {}).get("base")))


def resolved(path: str, base: Path | None) -> str:
    """A path as an absolute one: relative paths begin at `base`, the cluster file's directory."""
    if path.startswith("~"):
        raise ValueError(f'"{path}" begins with ~, which differs per user; write an absolute path')
    return os.path.normpath(os.path.join(base, path)) if base else path


def _argv(value: object, info: ValidationInfo) -> object:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not words or not all(isinstance(w, str) for w in words) or not words[0]:
        raise ValueError("it is no command; write a name, a path, or a list of words such as [python, -m, x]")
    first = resolved(words[0], (info.context or {}).get("base")) if "/" in words[0] else words[0]
    return (first, *words[1:])


def _model_path(value: str, info: ValidationInfo) -> str:
    if not value or value.startswith("-"):
        raise ValueError("it is no model; write its directory or its name")
    here = value.startswith(("/", "./", "../", "~"))
    return resolved(value, (info.context or {}).get("base")) if here else value


def _address(value: str) -> str:
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        raise ValueError(f'"{value}" is no IPv4 address; write one such as 10.0.0.1') from None
    if address.is_unspecified or address.is_multicast or value == "255.255.255.255":
        raise ValueError(f"{value} names no host; write the address that the other nodes reach")
    return value


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f'"{name}" is no name of a variable; write letters, digits and _')
    return name


def _settable(name: str) -> str:
    if _variable(name).startswith(_RESERVED):
        raise ValueError(f"{name} is set by yrnode itself; remove it, and use the keys of this file")
    return name


def _flag(name: str) -> str:
    if not _FLAG.fullmatch(name):
        raise ValueError(f'"{name}" is no flag; write it without dashes in front, such as max-model-len')
    return name


def vllm_flag(name: str) -> str:
    """A flag's name as vLLM prints it: `max_model_len` → `max-model-len`; what follows a dot is a key of JSON."""
    head, dot, rest = _flag(name).partition(".")
    return head.replace("_", "-") + dot + rest


def _no_twins(value: object) -> object:
    if isinstance(value, dict):
        seen: set[str] = set()
        for name in value:
            spelling = name.replace("_", "-")
            if spelling in seen:
                raise ValueError(f"{name} is given twice, with - and with _; keep one")
            seen.add(spelling)
    return value


def _arg(value: object) -> object:
    if isinstance(value, bool | dict):
        return value
    if isinstance(value, list | tuple):
        return tuple(json_text(item) if isinstance(item, dict | list) else text_of(item) for item in value)
    if value is None:
        raise ValueError("it has no value; write true for a flag without one")
    return text_of(value)


def json_text(value: object) -> str:
    """JSON on one line, as vLLM's flags take it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


Seq = Annotated[tuple[T, ...], BeforeValidator(_tuple), Strict(False)]
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=63)]
Port = Annotated[int, Field(ge=1, le=65535)]
Duration = Annotated[
    float,
    BeforeValidator(_duration),
    PlainSerializer(units.format_duration, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": units.DURATION_PATTERN, "examples": ["30s"]}),
]
Size = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(units.format_size, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": units.SIZE_PATTERN, "examples": ["512000MB"]}),
]
FilePath = Annotated[Path, BeforeValidator(_path), WithJsonSchema({"type": "string", "format": "path"})]
Argv = Annotated[
    tuple[str, ...],
    BeforeValidator(_argv),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
ModelPath = Annotated[str, AfterValidator(_model_path)]
Address = Annotated[str, AfterValidator(_address), WithJsonSchema({"type": "string", "format": "ipv4"})]
Variable = Annotated[str, AfterValidator(_variable)]
Text = Annotated[str, BeforeValidator(text_of), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Env = dict[Annotated[str, AfterValidator(_settable)], Text]
Args = Annotated[
    dict[
        Annotated[str, AfterValidator(vllm_flag)],
        Annotated[
            Any,
            BeforeValidator(_arg),
            WithJsonSchema({"type": ["string", "number", "boolean", "array", "object"]}),
        ],
    ],
    BeforeValidator(_no_twins),
]
Flags = dict[Annotated[str, AfterValidator(_flag)], Text]
