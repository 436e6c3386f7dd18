"""The programs of this node's components exist and may be run."""

from __future__ import annotations

from yrnode.components.host import Host
from yrnode.config.layout import etcd_nodes, node_servers
from yrnode.config.programs import program
from yrnode.model.errors import UsageError


def problems(host: Host) -> list[str]:
    bin_, router = host.cluster.bin, host.cluster.router
    needed = {"dscli": bin_.dscli}
    if host.node in etcd_nodes(host.cluster):
        needed["etcd"] = bin_.etcd
    if node_servers(host.cluster, host.node):
        needed["vllm"] = bin_.vllm
    if router is not None and router.node == host.node and router.argv is not None:
        needed["router"] = router.argv
    found = []
    for name, argv in needed.items():
        try:
            program(argv, host.caller.get("PATH"))
        except UsageError as e:
            found.append(f"{'router.argv' if name == 'router' else f'bin.{name}'}: {e}")
    return found
