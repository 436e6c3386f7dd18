"""A model directory: complete, without what does not belong there, and asked for no more than it can do."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from yrnode.config.group import Group
from yrnode.config.layout import servers
from yrnode.config.render import node_args
from yrnode.preflight.finding import Finding, Look, good, not_here, refusal, warning

GLM5 = "glm_moe_dsa"
"""`model_type` of GLM-5."""
ROTATION = "rot.safetensors"
INDEX = "*.safetensors.index.json"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
FORMATS = ("auto", "hf", "safetensors", "fastsafetensors", "mistral", "bitsandbytes", "pt", "npcache")
"""Of `load-format`: those that read the directory's own files. The last two read none of its safetensors."""
_UNINDEXED = FORMATS[-2:]
_ELSEWHERE = ("hf-config-path", "config-format")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "*.tiktoken", "tiktoken.model", "tekken.json")
POINTER = b"version https://git-lfs"
LENGTH = 12
_MEANT = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".json", ".model", ".jinja", ".py", ".tiktoken")
_NAMED = 3
_LENGTH_WORD = re.compile(r"^(\d+(?:\.\d+)?)([kKmMgG]?)$")
_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def look(at: Look) -> list[Finding]:
    found = []
    for name, group in at.host.cluster.groups.items():
        if not servers(name, group, at.host.node):
            continue
        path = Path(group.model)
        if not path.is_absolute():
            found.append(not_here(f"model of {name}", f"{group.model} is a name: vLLM finds it"))
        elif path.is_dir():
            found += judge(name, group, at.host.node, path)
        else:
            found.append(not_here(f"model of {name}", f"{path} is no directory"))
    return found


def judge(name: str, group: Group, node: str, path: Path) -> list[Finding]:
    what, args = f"model of {name}", node_args(group, node)
    elsewhere = any(args.get(flag) for flag in _ELSEWHERE)
    told = {} if elsewhere else config(path)
    found = [*_complete(what, path, args), *_limits(what, told, args)]
    if not elsewhere and not told and not (path / "params.json").exists():
        again = f"fetch the model into {path} again"
        found.insert(0, refusal(what, f"{path} has no config.json that can be read", "config.json", again))
    if is_glm5(told) and str(args.get("pipeline-parallel-size", "1")) not in ("1", "False"):
        cure = f"remove pipeline-parallel-size from groups.{name}.args, and use data and tensor parallel"
        found.append(refusal(what, "GLM-5 with pipeline parallel", "no pipeline parallel for GLM-5", cure))
    kind = told.get("model_type", "unknown type")
    return found or [good(what, f"{path}: {kind}, {len(files(path))} files, all there")]


def config(path: Path) -> Mapping[str, Any]:
    """config.json of a model directory; empty where there is none to be read."""
    try:
        found = json.loads((path / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_glm5(told: Mapping[str, Any]) -> bool:
    return told.get("model_type") == GLM5


def files(path: Path) -> dict[str, int]:
    """Size by name of the regular files in the directory itself."""
    return {e.name: e.stat().st_size for e in os.scandir(path) if e.is_file()}


def _complete(what: str, path: Path, args: Mapping[str, Any]) -> Iterator[Finding]:
    again, sizes = f"fetch the model into {path} again", files(path)
    reads = str(args.get("load-format") or FORMATS[0])
    if reads in FORMATS:
        yield from _weights(what, path, sizes, {} if reads in _UNINDEXED else indexed(path))
    own = any(sizes.get(p.name) for pattern in TOKENIZERS for p in path.glob(pattern))
    if not own and "tokenizer" not in args and "skip-tokenizer-init" not in args:
        yield warning(what, f"{path} has no tokenizer", "tokenizer.json or another", again)


def _weights(
    what: str, path: Path, sizes: Mapping[str, int], indexes: Mapping[str, set[str] | None]
) -> Iterator[Finding]:
    """`indexes`: as `indexed` tells. Beside one whose files are all there, another one is a leftover."""
    again, needed = f"fetch the model into {path} again", "all files that its index names"
    if (path / ROTATION).exists():
        cure = f"move {ROTATION} to another directory"
        yield refusal(what, f"{path} holds {ROTATION}", f"weights without {ROTATION} beside them", cure)
    lacking = {
        index: [f"{file} ({why})" for file in sorted(named) if (why := _lacking(path, file, sizes))]
        for index, named in indexes.items()
        if named is not None
    }
    whole = [index for index, files in lacking.items() if not files]
    for index in indexes:
        if whole and index not in whole:
            words = f"{path}/{index} does not fit the files that are there, while {whole[0]} does"
            yield warning(what, words, needed, f"remove {index} if it is a leftover")
        elif index not in lacking:
            yield refusal(what, f"{path}/{index} cannot be read", "an index of the weights", again)
    if not whole and (files := sorted({file for own in lacking.values() for file in own})):
        more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        yield refusal(what, f"{path} lacks {', '.join(files[:_NAMED])}{more}", needed, again)
    elif not lacking and not any(sizes.get(p.name) for pattern in WEIGHTS for p in path.glob(pattern)):
        yield refusal(what, f"{path} has no weights", "weights", again)


def indexed(path: Path) -> dict[str, set[str] | None]:
    """The files that each index of the weights names; None for an index that cannot be read."""
    found: dict[str, set[str] | None] = {}
    for index in sorted(path.glob(INDEX)):
        try:
            named = {str(file) for file in dict(json.loads(index.read_bytes())["weight_map"]).values()}
        except (OSError, ValueError, KeyError, TypeError):
            named = set()
        # one that names nothing is none
        found[index.name] = named or None
    return found


def _lacking(path: Path, file: str, sizes: Mapping[str, int]) -> str:
    """Why a file of weights is none; empty when it looks like one."""
    try:
        size = sizes.get(file, -1) if "/" not in file else (path / file).stat().st_size
        if size < 0:
            return "missing"
        if not size:
            return "empty"
        with open(path / file, "rb") as f:
            return "a git-lfs pointer" if f.read(len(POINTER)) == POINTER else ""
    except OSError as e:
        return (e.strerror or str(e)).lower()


def _limits(what: str, told: Mapping[str, Any], args: Mapping[str, Any]) -> Iterator[Finding]:
    wanted, most = length(args.get("max-model-len")), longest(told)
    if wanted is None or most is None or wanted <= most:
        return
    needed = f"at most {most}, the model's max_position_embeddings"
    cure = f"write max-model-len: {most} or less"
    yield warning(what, f"max-model-len is {wanted}", needed, cure)


def longest(told: Mapping[str, Any]) -> int | None:
    """Tokens of context that the model's config holds, its text part's where it has several."""
    text = told.get("text_config")
    for part in (told, text if isinstance(text, dict) else {}):
        if isinstance(value := part.get("max_position_embeddings"), int):
            return value
    return None


def length(value: object) -> int | None:
    """`max-model-len` as vLLM reads it: a number, or 200k (thousands) and 198K (of 1024); None for anything else."""
    match = _LENGTH_WORD.match(str(value).strip())
    return int(float(match[1]) * _SUFFIX[match[2]]) if match else None


def digest(path: Path) -> str:
    """What nodes can compare without reading weights: config, index, and names and sizes of the model's files.

    OSError where the directory cannot be read.
    """
    found = hashlib.sha256()
    for file in (path / "config.json", *sorted(path.glob(INDEX))):
        found.update(file.read_bytes() if file.exists() else b"")
    kept = sorted(item for item in files(path).items() if item[0].endswith(_MEANT))
    found.update(json.dumps(kept).encode())
    return found.hexdigest()[:LENGTH]
