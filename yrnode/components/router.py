"""The router of this node: vllm-ascend's sample proxy, vLLM's router, or a command of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from yrnode.components import environment, proxies, vllm
from yrnode.components.checks import tuned
from yrnode.components.host import Host
from yrnode.config.cluster import Bin
from yrnode.config.layout import router_groups, router_health, router_url, routes
from yrnode.config.render import args_list
from yrnode.config.router import Router
from yrnode.model.cause import Cause, Reason
from yrnode.model.cover import short
from yrnode.model.errors import UsageError
from yrnode.model.routing import Role
from yrnode.model.spec import CheckSpec, ComponentSpec, PortNeed
from yrnode.model.state import Plane
from yrnode.process.exit import Exit

NAME = "router"
LOOK_S = 1
"""Seconds between two looks of the sample proxy for members that it is to take or to drop; its own 10 s are long."""
PROMETHEUS_PORT = 29000
"""vllm-router's own; it does not start where that is taken."""


def program_of(bin_: Bin, router: Router) -> tuple[str, tuple[str, ...]]:
    """The key of the cluster file that names the router's program, and its words."""
    if router.kind == "ascend-proxy":
        return "bin.python", bin_.python
    if router.kind == "vllm-router":
        return "bin.vllm_router", bin_.vllm_router
    return "router.argv", router.argv or ()


def spec(host: Host) -> ComponentSpec:
    router = host.cluster.router
    if router is None:
        raise UsageError("router: it is missing")
    key, words = program_of(host.cluster.bin, router)
    if not words:
        raise UsageError(f"{key}: it is missing; write the router's command")
    program = environment.find_program(words, host.engine_env)
    before = environment.with_program({**host.engine_env, **_variables(host, router)}, program)
    args = {**_derived(host, router), **router.args}
    script = [str(router.script)] if router.kind == "ascend-proxy" else []
    url = router_url(host.cluster)
    checks = (
        CheckSpec("process", "process", 1.0, 1.0, witness=True, local=True),
        CheckSpec("health", "http", 2.0, 5.0, gate=True, params={"url": url + router_health(router)}),
        CheckSpec("completion", "completion", 30.0, 30.0, act=False, after=("health",), params=asked(host, url)),
    )
    return ComponentSpec(
        NAME,
        "router",
        Plane.ROUTER,
        (*program, *script, *args_list(args)),
        proxies.direct(host.cluster, environment.expand(router.env, before)),
        host.dir(NAME),
        host.log(NAME),
        start_timeout_s=60.0,
        checks=tuned(host.cluster, "router", checks),
        ports=tuple(_ports(host, router)),
        url=url,
    )


def _ports(host: Host, router: Router) -> Iterable[PortNeed]:
    yield PortNeed(host.address, router.port, "router.port")
    if router.kind == "vllm-router":
        said = str(router.args.get("prometheus-port", PROMETHEUS_PORT))
        if said.isdecimal():
            at = str(router.args.get("prometheus-host", "127.0.0.1"))
            yield PortNeed(at, int(said), "router.args.prometheus-port")


def _derived(host: Host, router: Router) -> dict[str, Any]:
    """Flags that follow from the file; what a user wrote in `args` goes over them."""
    at = {"host": host.address, "port": str(router.port)}
    if router.kind == "ascend-proxy":
        return {**at, **_instances(host), "waiting-retry-interval": str(LOOK_S)}
    if router.kind == "vllm-router":
        # it begins with no worker, and waits for none; only with many routers in one does it take prefill and decode
        # workers while it runs
        return {**at, "enable-igw": True} if router.prefill else at
    return {}


def _instances(host: Host) -> dict[str, Any]:
    """The sample proxy cannot begin without any: all of them, and those that are not ready are taken out at once."""
    found: dict[str, Any] = {}
    for role, word in ((Role.PREFILL, "prefiller"), (Role.DECODE, "decoder")):
        parts = [urlsplit(r.url) for r in routes(host.cluster) if r.role is role]
        if any(p.scheme != "http" or p.path for p in parts):
            raise UsageError(
                "router.kind: ascend-proxy reaches servers by plain http without a path; use vllm-router"
            )
        found[f"{word}-hosts"] = tuple(str(p.hostname) for p in parts)
        found[f"{word}-ports"] = tuple(str(p.port) for p in parts)
    return found


def _variables(host: Host, router: Router) -> dict[str, str]:
    # its title would else erase the environment, and with it our mark
    found = {"SPT_NOENV": "1"}
    # the sample proxy logs in with it everywhere; vllm-router at prefill servers, at others as its client does
    served = router_groups(host.cluster) if router.kind == "ascend-proxy" else (router.prefill,)
    keys = {vllm.asked(host, host.cluster.groups[name])[1] for name in served if name} - {""}
    if len(keys) > 1:
        raise UsageError("router.kind: ascend-proxy has one key for all its servers; give both groups the same")
    if keys and router.kind != "command":
        found["OPENAI_API_KEY"] = keys.pop()
    return found


def asked(host: Host, url: str) -> dict[str, Any]:
    """Where a completion through the router goes, in the words of the ranks behind it."""
    cluster, router = host.cluster, host.cluster.router
    names = [router.decode, router.prefill, router.group] if router is not None else []
    name = next((n for n in names if n), next(iter(cluster.groups)))
    model, key = vllm.asked(host, cluster.groups[name])
    return {"url": url, "model": model, "key": key}


def read_death(how: Exit, ready: bool, lines: list[str]) -> Cause:
    told = [x.strip() for x in lines if x.strip() and not x.startswith("---")]
    reason = Reason.EXITED if ready else Reason.START_FAILED
    return Cause(reason, f"exited: {how}", short((told or [""])[-1], 300), NAME)
