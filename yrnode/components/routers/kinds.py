"""The client for the router that the cluster file names."""

from __future__ import annotations

import aiohttp

from yrnode.components import vllm
from yrnode.components.routers.ascend_proxy import AscendProxy
from yrnode.components.routers.base import RouterClient
from yrnode.components.routers.vllm_router import VllmRouter
from yrnode.config.cluster import Cluster
from yrnode.config.layout import router_groups, router_url
from yrnode.config.render import node_args


def client_of(cluster: Cluster, http: aiohttp.ClientSession) -> RouterClient | None:
    """None without a router, and for a command of the user's own: nobody knows how that is told."""
    router, url = cluster.router, router_url(cluster)
    if router is None or router.kind == "command":
        return None
    if router.kind == "ascend-proxy":
        return AscendProxy(http, url)
    groups = {name: cluster.groups[name] for name in router_groups(cluster)}
    models = {name: vllm.served_name(g, node_args(g, next(iter(g.ranks)))) for name, g in groups.items()}
    return VllmRouter(http, url, models)
