"""Variables that came along unasked: of a shell, a service link of Kubernetes, a script that serves others too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from yrnode.components.host import Host
from yrnode.model.errors import UsageError
from yrnode.model.spec import ComponentSpec

TELLING = ("ETCD_", "ETCDCTL_", "VLLM_", "HCCL_", "DS_", "YR_", "HF_", "GLOO_", "PYTORCH_", "OMP_")
"""What a user may believe to be passed on."""
_OF_ETCD = ("ETCD_", "ETCDCTL_")
_VLLM_PORT = "VLLM_PORT"


def notes(host: Host, specs: Iterable[ComponentSpec]) -> list[str]:
    """What becomes of such variables, a line each. Names alone: a value may be a secret."""
    reached = {name for spec in specs for name in spec.env}
    lines = []
    dropped = sorted(name for name in host.caller if name.startswith(TELLING) and name not in reached)
    if dropped:
        cure = "write what a rank needs into env or env_from"
        lines.append(f"variables of yrnode's own environment are dropped: {', '.join(dropped)}; {cure}")
    scripted = sorted(name for name in host.engine_env if name.startswith(_OF_ETCD))
    if scripted:
        others = "ranks and the router get it, etcd does not: its settings are in etcd of the cluster file"
        lines.append(f"env_from sets {', '.join(scripted)}: {others}")
    return lines


def refuse_service_link(host: Host, group: str, env: Mapping[str, str]) -> None:
    """UsageError where a rank's VLLM_PORT is no port: vLLM would end over it, again and again."""
    value = env.get(_VLLM_PORT)
    if value is None or value.isdecimal():
        return
    scripted = host.engine_env.get(_VLLM_PORT) == value
    where = _place(host) if scripted else f"groups.{group}.env"
    cure = f"remove it, or write unset: [{_VLLM_PORT}] in groups.{group}"
    raise UsageError(f'{where}: {_VLLM_PORT} is "{value}", which vLLM refuses: it must be a port; {cure}')


def _place(host: Host) -> str:
    """The line of the script that names the variable last, as far as it can be told."""
    for script in reversed(host.cluster.env_from):
        try:
            lines = script.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for number in range(len(lines), 0, -1):
            if re.search(rf"\b{_VLLM_PORT}\b", lines[number - 1]):
                return f"env_from: {script}:{number}"
    return "env_from"
