"""The packages that the ranks' Python has: vLLM, vllm-ascend with its yuanrong backend, transformers, the SDK."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yrnode.components import datasystem
from yrnode.config.cluster import Cluster
from yrnode.config.layout import servers
from yrnode.config.programs import program
from yrnode.model.errors import UsageError
from yrnode.model.spec import ComponentSpec
from yrnode.preflight import npus, weights
from yrnode.preflight.asking import Answer, ask
from yrnode.preflight.finding import Finding, Look, blocker, good, not_here, warning
from yrnode.preflight.versions import at_least

INSIDE = Path(__file__).with_name("inside.py")
NAME, VLLM, ASCEND, TRANSFORMERS, SDK = "ranks' Python", "vllm", "vllm-ascend", "transformers", "yr.datasystem"
YUANRONG = "yuanrong"
LEAST_ASCEND, LEAST_TRANSFORMERS = "0.18.0rc1", "5.2.0"


@dataclass(frozen=True)
class Has:
    """`backend`: the file, None where vllm-ascend lacks it, False without vllm-ascend. `sdk`: why `yr.datasystem`
    cannot be imported, empty where it can, None where nobody knows."""

    versions: Mapping[str, str | None] = field(default_factory=dict)
    backend: str | bool | None = False
    sdk: str | None = None


@dataclass(frozen=True)
class Uses:
    """What the ranks of this node need of it. `store`: the yuanrong backend; `real`: vLLM itself; `npu`:
    this host has NPUs."""

    store: bool = False
    glm5: bool = False
    real: bool = False
    npu: bool = False


def look(at: Look) -> list[Finding]:
    cluster, node = at.host.cluster, at.host.node
    groups = [group for name, group in cluster.groups.items() if servers(name, group, node)]
    if not groups:
        return [not_here(NAME, "no rank on this node")]
    python = interpreter(cluster, at.host.engine_env.get("PATH"))
    if not python:
        return [not_here(NAME, "bin.vllm is no Python program")]
    uses = Uses(
        any((store := group.kv_connector.ascend_store) and store.backend == YUANRONG for group in groups),
        any(weights.is_glm5(weights.config(Path(group.model))) for group in groups if group.model.startswith("/")),
        os.path.basename(cluster.bin.vllm[-1]) == "vllm",
        npus.present(at),
    )
    has, error = at.once.get(NAME, lambda: asked(python, at.specs))
    if error:
        return [warning(NAME, f"{python}: {error}", "its packages' versions", "see bin.vllm, and run it yourself")]
    return judge(has, uses)


def interpreter(cluster: Cluster, search: str | None) -> str:
    """The Python that runs `bin.vllm`; empty where it is none, or nobody knows."""
    try:
        argv = program(cluster.bin.vllm, search)
    except UsageError:
        return ""
    python = datasystem.sdk_python(argv)
    return python if os.path.basename(python).startswith("python") else ""


def asked(python: str, specs: Sequence[ComponentSpec]) -> tuple[Has, str]:
    """What it has, in the environment of a rank, and why it could not be asked."""
    env = next((spec.env for spec in specs if spec.kind == "rank"), {})
    # read here: beside its file stand modules whose names could hide others
    answer = ask([python, "-c", INSIDE.read_text()], {**env, "PYTHONDONTWRITEBYTECODE": "1"})
    return read(answer)


def read(answer: Answer) -> tuple[Has, str]:
    said: dict[str, Any] = {}
    for line in answer.text.splitlines():
        try:
            said |= json.loads(line)
        except (ValueError, TypeError):
            # a package that prints when it is imported
            continue
    if "versions" not in said:
        return Has(), answer.error or "it says nothing that is understood"
    sdk = said.get("datasystem", f"the import ended Python: {answer.error}")
    return Has(said["versions"], said["backend"], sdk), ""


def judge(has: Has, uses: Uses) -> list[Finding]:
    found = [_vllm(has, uses)]
    if uses.store:
        found += [*_ascend(has, uses), _sdk(has)]
    if uses.glm5:
        found.append(_transformers(has))
    return found


def _vllm(has: Has, uses: Uses) -> Finding:
    version = has.versions.get("vllm")
    if version:
        return good(VLLM, version)
    if not uses.real:
        return not_here(VLLM, "bin.vllm is another program, and its Python has no vllm")
    return warning(VLLM, "its version is not to be found", "an installed vllm", "install it beside bin.vllm")


def _ascend(has: Has, uses: Uses) -> list[Finding]:
    version = has.versions.get("vllm-ascend")
    if has.backend is False and not version:
        if not uses.npu:
            return [not_here(ASCEND, "no NPU and no vllm-ascend")]
        cure = f"install vllm-ascend {LEAST_ASCEND} or later, or name the right program as bin.vllm"
        return [warning(ASCEND, "missing", f"{LEAST_ASCEND} or later", cure)]
    found = []
    if has.backend is None:
        cure = "apply the deployment guide's patch 0001-Implement-yuanrong-backend to vllm-ascend, or use a later one"
        found.append(blocker(ASCEND, f"{version}: no yuanrong backend", "yuanrong_backend.py in it", cure))
    needed = f"{LEAST_ASCEND} or later"
    match at_least(version or "", LEAST_ASCEND):
        case True:
            found += [] if found else [good(ASCEND, f"{version}, with the yuanrong backend", needed)]
        case False if not str(version).startswith("0.1.dev"):
            found.append(warning(ASCEND, str(version), needed, "use a later vllm-ascend image"))
        case _:
            # an unpacked source without tags
            found += [] if found else [good(ASCEND, f"{version or 'unknown version'}, with the backend", needed)]
    return found


def _sdk(has: Has) -> Finding:
    version = has.versions.get("openyuanrong-datasystem")
    if not has.sdk:
        return good(SDK, version or "of an unknown version", "it can be imported")
    cure = "pip install openyuanrong-datasystem into the ranks' Python"
    return blocker(SDK, has.sdk, "it can be imported", cure)


def _transformers(has: Has) -> Finding:
    version, needed = has.versions.get("transformers"), f"{LEAST_TRANSFORMERS} or later, for GLM-5"
    cure = f"pip install transformers=={LEAST_TRANSFORMERS} --no-deps --force-reinstall, in the ranks' Python"
    if not version:
        return warning(TRANSFORMERS, "missing", needed, cure)
    if at_least(version, LEAST_TRANSFORMERS) is False:
        return blocker(TRANSFORMERS, version, needed, cure)
    return good(TRANSFORMERS, version, needed)
