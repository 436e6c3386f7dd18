"""The router of this node: a command of the user's own with a health URL."""

from __future__ import annotations

from typing import Any

from yrnode.components import environment, proxies, vllm
from yrnode.components.checks import tuned
from yrnode.components.host import Host
from yrnode.config.layout import router_health
from yrnode.config.render import args_list
from yrnode.model.cause import Cause, Reason
from yrnode.model.errors import UsageError
from yrnode.model.spec import CheckSpec, ComponentSpec, PortNeed
from yrnode.model.state import Plane
from yrnode.process.exit import Exit

NAME = "router"


def spec(host: Host) -> ComponentSpec:
    router = host.cluster.router
    if router is None or router.argv is None:
        raise UsageError("router.argv: it is missing; write the router's command")
    argv = environment.find_program(router.argv, host.engine_env)
    env = environment.expand(router.env, environment.with_program(dict(host.engine_env), argv))
    url = f"http://{host.address}:{router.port}"
    checks = (
        CheckSpec("process", "process", 1.0, 1.0, witness=True, local=True),
        CheckSpec("health", "http", 2.0, 5.0, gate=True, params={"url": url + router_health(router)}),
        CheckSpec("completion", "completion", 30.0, 30.0, act=False, after=("health",), params=_asked(host, url)),
    )
    return ComponentSpec(
        NAME,
        "router",
        Plane.ROUTER,
        (*argv, *args_list(router.args)),
        proxies.direct(host.cluster, env),
        host.dir(NAME),
        host.log(NAME),
        start_timeout_s=60.0,
        checks=tuned(host.cluster, "router", checks),
        ports=(PortNeed(host.address, router.port, "router.port"),),
        url=url,
    )


def _asked(host: Host, url: str) -> dict[str, Any]:
    """Where a completion through the router goes, in the words of the ranks behind it."""
    cluster, router = host.cluster, host.cluster.router
    names = [router.decode, router.prefill, router.group] if router is not None else []
    name = next((n for n in names if n), next(iter(cluster.groups)))
    model, key = vllm.asked(host, cluster.groups[name])
    return {"url": url, "model": model, "key": key}


def read_death(how: Exit, ready: bool, lines: list[str]) -> Cause:
    told = [x.strip() for x in lines if x.strip() and not x.startswith("---")]
    reason = Reason.EXITED if ready else Reason.START_FAILED
    return Cause(reason, f"exited: {how}", (told or [""])[-1][:300], NAME)
