"""What each kind of router runs, from the cluster file."""

from __future__ import annotations

import pytest

from tests.components.conftest import HostOf, by_name
from yrnode.components import node
from yrnode.model.errors import UsageError
from yrnode.model.spec import ComponentSpec, PortNeed
from yrnode.preflight import programs

NODES = """
cluster: c
nodes: {n0: {address: 10.0.0.1}, n1: {address: 10.0.0.2}}
bin: {python: [/bin/sh, -u], vllm_router: /bin/sh}
groups:
"""
SPLIT = f"""{NODES}
  p: {{ranks: {{n0: 1, n1: 1}}, port: 6600, model: m, PMORE}}
  d: {{ranks: {{n1: 2}}, devices: {{n1: [2, 3]}}, port: 6700, model: m, DMORE}}
router: {{node: n0, prefill: p, decode: d, port: 8000, """
ONE = f"{NODES}  g: {{ranks: {{n0: 1, n1: 1}}, model: m}}\nrouter: {{node: n0, "


def router(host_of: HostOf, text: str) -> ComponentSpec:
    return by_name(host_of(text.replace(", PMORE", "").replace(", DMORE", "") + "}\n"))["router"]


def test_the_sample_proxy_begins_with_every_server(host_of: HostOf) -> None:
    spec = router(host_of, SPLIT + "script: /opt/proxy.py, args: {workers: 2, waiting-retry-interval: false}")
    words = " ".join(spec.argv)
    assert words == (
        "/bin/sh -u /opt/proxy.py --host 10.0.0.1 --port 8000 --prefiller-hosts 10.0.0.1 10.0.0.2 "
        "--prefiller-ports 6600 6600 --decoder-hosts 10.0.0.2 10.0.0.2 --decoder-ports 6700 6701 --workers 2"
    )
    assert [c.params["url"] for c in spec.gates] == ["http://10.0.0.1:8000/healthcheck"]
    assert "OPENAI_API_KEY" not in spec.env
    again = router(host_of, SPLIT + "script: /opt/proxy.py")
    assert " ".join(again.argv).endswith("--waiting-retry-interval 1")


def test_the_sample_proxy_logs_in_with_the_key_of_its_servers(host_of: HostOf) -> None:
    keyed = SPLIT.replace("PMORE", "args: {api-key: sk}").replace("DMORE", "env: {VLLM_API_KEY: sk}")
    assert router(host_of, keyed + "script: /p.py").env["OPENAI_API_KEY"] == "sk"
    other = SPLIT.replace("PMORE", "args: {api-key: sk}").replace("DMORE", "env: {VLLM_API_KEY: no}")
    with pytest.raises(UsageError, match=r"one key for all its servers; give both groups the same$"):
        router(host_of, other + "script: /p.py")


def test_vllm_router_logs_in_at_prefill_servers(host_of: HostOf) -> None:
    keyed = SPLIT.replace("PMORE", "args: {api-key: sk}").replace("DMORE", "env: {VLLM_API_KEY: no}")
    assert router(host_of, keyed + "kind: vllm-router").env["OPENAI_API_KEY"] == "sk"
    assert "OPENAI_API_KEY" not in router(host_of, keyed + "kind: command, argv: /bin/sh").env


@pytest.mark.parametrize("more", ["args: {ssl-certfile: /c}", "args: {root-path: /x}"])
def test_the_sample_proxy_cannot_reach_every_server(host_of: HostOf, more: str) -> None:
    with pytest.raises(UsageError, match=r"plain http without a path; use vllm-router$"):
        router(host_of, SPLIT.replace("DMORE", more) + "script: /p.py")


def test_vllm_router_begins_with_none_and_takes_both_kinds_while_it_runs(host_of: HostOf) -> None:
    spec = router(host_of, SPLIT + "kind: vllm-router, args: {policy: round_robin, prometheus-port: 29100}")
    words = " ".join(spec.argv)
    assert words == ("/bin/sh --host 10.0.0.1 --port 8000 --enable-igw --policy round_robin --prometheus-port 29100")
    assert [c.params["url"] for c in spec.gates] == ["http://10.0.0.1:8000/health"]
    metrics = PortNeed("127.0.0.1", 29100, "router.args.prometheus-port")
    assert spec.ports == (PortNeed("10.0.0.1", 8000, "router.port"), metrics)
    # its process title would else erase the mark by which it is known to be ours
    assert spec.env["SPT_NOENV"] == "1"


def test_vllm_router_of_one_group(host_of: HostOf) -> None:
    spec = router(host_of, ONE + "kind: vllm-router, args: {host: 0.0.0.0}")
    assert " ".join(spec.argv) == "/bin/sh --host 0.0.0.0 --port 8000"
    assert (spec.url, spec.ports[1].port) == ("http://10.0.0.1:8000", 29000)


def test_another_node_has_no_router(host_of: HostOf) -> None:
    text = ONE + "kind: vllm-router}\n"
    assert "router" not in {s.name for s in node.specs(host_of(text, "n1"))}


def test_a_router_that_is_not_installed_is_seen_before_anything_starts(host_of: HostOf) -> None:
    lacking = NODES.replace("/bin/sh}", "/none/vllm-router}").replace("[/bin/sh, -u]", "/none/python")
    text = lacking + ONE.partition("groups:\n")[2]
    found = programs.problems(host_of(text + "kind: vllm-router}\n"))
    assert any(line.startswith("bin.vllm_router: /none/vllm-router is no program") for line in found)
    split = lacking + SPLIT.partition("groups:\n")[2].replace(", PMORE", "").replace(", DMORE", "")
    found = programs.problems(host_of(split + "script: /none/proxy.py}\n"))
    assert any(line.startswith("bin.python: /none/python is no program") for line in found)
    assert any(line.startswith("router.script: there is no file /none/proxy.py") for line in found)
