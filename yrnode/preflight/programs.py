"""The programs of this node's components exist and may be run."""

from __future__ import annotations

from yrnode.components.host import Host
from yrnode.components.router import program_of
from yrnode.config.layout import etcd_nodes, node_servers
from yrnode.config.programs import program
from yrnode.model.errors import UsageError


def problems(host: Host) -> list[str]:
    bin_, router = host.cluster.bin, host.cluster.router
    needed = [("bin.dscli", bin_.dscli, host.caller)]
    if host.node in etcd_nodes(host.cluster):
        needed.append(("bin.etcd", bin_.etcd, host.caller))
    # what env_from puts into PATH counts for these, as when they are started
    if node_servers(host.cluster, host.node):
        needed.append(("bin.vllm", bin_.vllm, host.engine_env))
    if router is not None and router.node == host.node:
        needed.append((*program_of(host.cluster.bin, router), host.engine_env))
    found = []
    for key, argv, env in needed:
        try:
            program(argv, env.get("PATH"))
        except UsageError as e:
            found.append(f"{key}: {e}")
    if router is not None and router.node == host.node and router.script is not None and not router.script.is_file():
        found.append(f"router.script: there is no file {router.script}; copy vllm-ascend's proxy there")
    return found
