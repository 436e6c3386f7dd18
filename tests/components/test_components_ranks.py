"""What each rank runs, and that its probes ask as it was told to listen."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from tests.components.conftest import BASE, PAIR, HostOf, by_name, flags
from yrnode.components import vllm
from yrnode.components.host import Host
from yrnode.model.spec import PortNeed

BIN = Path(sys.executable).parent


def test_the_demos_ranks(demo: Host) -> None:
    spec = by_name(demo)["rank/serve/1"]
    assert spec.argv[:5] == (str(BIN / "python"), "-m", "yrnode.demo.engine", "serve", "demo")
    given = flags(spec.argv)
    transfer = json.loads(given.pop("kv-transfer-config"))
    assert given == {
        "host": "127.0.0.1",
        "port": "26652",
        "data-parallel-size": "2",
        "data-parallel-rank": "1",
        "data-parallel-address": "127.0.0.1",
        "data-parallel-rpc-port": vllm.RPC_PORT,
        "tensor-parallel-size": "1",
        "enable-server-load-tracking": "",
        "shutdown-timeout": "10",
        "served-model-name": "demo",
    }
    assert transfer == {
        "kv_connector": "AscendStoreConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"lookup_rpc_port": "1", "backend": "yuanrong"},
    }
    assert spec.url == "http://127.0.0.1:26652"
    run = demo.places.run_dir / "rank-serve-1"
    assert (spec.dirs, spec.stale) == ((run,), (run,))
    assert spec.stop_grace_s == 20.0
    assert spec.env["VLLM_RPC_BASE_PATH"] == str(run)
    assert spec.env["SPT_NOENV"] == "1"
    assert spec.env["PYTHONHASHSEED"] == "0"
    config = Path(spec.env["YR_CONFIG_PATH"])
    assert json.loads(spec.files[config]) == {"worker_addr": spec.env["DS_WORKER_ADDR"]}
    assert spec.env["DS_WORKER_ADDR"] == "127.0.0.1:24881"
    assert spec.env["DATASYSTEM_CLIENT_LOG_DIR"] == str(demo.places.log_dir / "rank-serve-1-datasystem")


def test_ranks_of_two_nodes(host_of: HostOf) -> None:
    first = by_name(host_of(PAIR))
    second = by_name(host_of(PAIR, "n1"))
    assert list(first) == ["worker", "rank/serve/0"]
    assert list(second) == ["etcd", "worker", "rank/serve/1", "rank/serve/2"]
    given = flags(second["rank/serve/2"].argv)
    assert (given["host"], given["port"]) == ("0.0.0.0", "7001")
    assert (given["data-parallel-size"], given["data-parallel-rank"]) == ("3", "2")
    assert (given["data-parallel-address"], given["data-parallel-rpc-port"]) == ("10.0.0.1", "9500")
    assert given["tensor-parallel-size"] == "4"
    assert second["rank/serve/2"].url == "http://10.0.0.2:7001"
    # all addresses are bound, so a holder of any is in the way; rank 0 listens for the others too
    assert second["rank/serve/2"].ports == (PortNeed("0.0.0.0", 7001, "groups.serve.port"),)
    assert first["rank/serve/0"].ports == (
        PortNeed("0.0.0.0", 7000, "groups.serve.port"),
        PortNeed("10.0.0.1", 9500, "groups.serve.rpc_port"),
    )


HEADLESS = PAIR.replace("model:", "mode: headless, model:")


def test_a_head_and_a_headless_server(host_of: HostOf) -> None:
    """One server a node; what has no port of its own asks its head, and only what it must."""
    assert HEADLESS != PAIR
    head = by_name(host_of(HEADLESS))["rank/serve/0"]
    (name, other) = next((n, s) for n, s in by_name(host_of(HEADLESS, "n1")).items() if s.kind == "rank")
    assert name == "rank/serve/1"
    of_head, of_other = flags(head.argv), flags(other.argv)
    both = {
        "data-parallel-size": "3",
        "data-parallel-address": "10.0.0.1",
        "data-parallel-rpc-port": "9500",
    }
    given = {
        k: v for k, v in of_head.items() if k.startswith("data-parallel") or k in ("headless", "api-server-count")
    }
    assert given == {**both, "data-parallel-size-local": "1", "api-server-count": "1"}
    given = {k: v for k, v in of_other.items() if k.startswith("data-parallel") or k in ("headless", "host", "port")}
    assert given == {**both, "data-parallel-size-local": "2", "data-parallel-start-rank": "1", "headless": ""}
    assert other.ports == ()
    assert other.url == head.url == "http://10.0.0.1:7000"
    checks = {c.name: c for c in other.checks}
    assert list(checks) == ["process", "processes", "health", "engine", "canary"]
    assert [c.name for c in other.gates] == ["health", "canary"]
    assert (checks["health"].watch, checks["health"].params["url"]) == (False, "http://10.0.0.1:7000/health")
    assert checks["canary"].params["idle_s"] == math.inf
    # each engine is asked by name: its own by the headless server, all by the head
    of = {c.name: c.params.get("ranks") for c in head.checks}
    assert checks["canary"].params["ranks"] == (1, 2)
    assert (of["canary"], of["progress"]) == ((0, 1, 2), (0, 1, 2))


HEAD_ONLY = "nodes: {n0: {args: {ssl-certfile: /c, root-path: /v, api-key: sesame, served-model-name: m0}}}"


def test_a_headless_server_asks_its_head_as_the_head_was_told_to_listen(host_of: HostOf) -> None:
    text = HEADLESS.replace("mode: headless", f"mode: headless, {HEAD_ONLY}, args: {{api-server-count: 2}}")
    head = by_name(host_of(text))["rank/serve/0"]
    other = by_name(host_of(text, "n1"))["rank/serve/1"]
    assert other.url == head.url == "https://10.0.0.1:7000/v"
    keys = ("url", "model", "key", "group")
    asked = [{k: c.params[k] for k in keys} for s in (head, other) for c in s.checks if c.name == "canary"]
    assert asked[0] == asked[1] == {"url": head.url, "model": "m0", "key": "sesame", "group": "serve"}
    # vllm refuses it beside --headless; of several servers /load counts one
    assert flags(head.argv)["api-server-count"] == "2"
    assert "api-server-count" not in flags(other.argv)
    assert next(c.params["load"] for c in head.checks if c.name == "progress") is False


def test_a_group_in_one_head_has_no_peers_to_meet(host_of: HostOf) -> None:
    spec = by_name(host_of(BASE.replace("model:", "mode: headless, model:")))["rank/serve/0"]
    assert not [f for f in flags(spec.argv) if f.startswith("data-parallel") or f in ("headless", "api-server-count")]
    assert not any("ranks" in c.params for c in spec.checks)
    assert next(c.params["load"] for c in spec.checks if c.name == "progress") is True


def test_a_rank_alone_has_no_data_parallel_flags_and_no_cache_of_its_own_accord(host_of: HostOf) -> None:
    spec = by_name(host_of(BASE))["rank/serve/0"]
    assert not [f for f in flags(spec.argv) if f.startswith("data-parallel") or f == "kv-transfer-config"]
    assert not {"DS_WORKER_ADDR", "YR_CONFIG_PATH"} & spec.env.keys()
    assert spec.files == {}
    target = vllm.target(spec)
    assert (target.name, target.group, target.model, target.key, target.external) == (
        *("rank/serve/0", "serve", "/models/m", ""),
        False,
    )


RANK = """
cluster: c
nodes: {{n0: {{address: 10.0.0.1}}}}
groups:
  serve:
    ranks: {{n0: 1}}
    model: /models/m
    args: {args}
    env: {env}
"""


@pytest.mark.parametrize(
    ("role", "extra", "expected"),
    [
        ("both", "", True),
        ("producer", "", True),
        ("consumer", "", False),
        ("consumer", "extra: {consumer_is_to_load: true}", True),
    ],
)
def test_who_is_expected_to_find_something_in_the_external_cache(
    host_of: HostOf, role: str, extra: str, expected: bool
) -> None:
    more = f"kv_connector: {{ascend_store: {{{extra}}}}}, role: {role}"
    spec = by_name(host_of(BASE.replace("model: /models/m", f"model: /models/m, {more}")))["rank/serve/0"]
    assert vllm.target(spec).external is expected


@pytest.mark.parametrize(
    ("args", "env", "url", "model", "key"),
    [
        ("{}", "{}", "http://10.0.0.1:6600", "/models/m", ""),
        ("{served-model-name: [a, b]}", "{}", "http://10.0.0.1:6600", "a", ""),
        ("{served_model_name: a}", "{}", "http://10.0.0.1:6600", "a", ""),
        ("{served-model-name: false}", "{}", "http://10.0.0.1:6600", "/models/m", ""),
        ("{api-key: k1}", "{VLLM_API_KEY: k2}", "http://10.0.0.1:6600", "/models/m", "k1"),
        ("{api-key: [k1, k3]}", "{}", "http://10.0.0.1:6600", "/models/m", "k1"),
        ("{}", "{VLLM_API_KEY: k2}", "http://10.0.0.1:6600", "/models/m", "k2"),
        ("{api-key: false}", "{}", "http://10.0.0.1:6600", "/models/m", ""),
        ("{root-path: /v}", "{}", "http://10.0.0.1:6600/v", "/models/m", ""),
        ("{root-path: false}", "{}", "http://10.0.0.1:6600", "/models/m", ""),
        ("{ssl-certfile: /c, ssl-keyfile: /k}", "{}", "https://10.0.0.1:6600", "/models/m", ""),
        ("{ssl-certfile: false}", "{}", "http://10.0.0.1:6600", "/models/m", ""),
    ],
)
def test_a_probe_asks_as_the_rank_was_told_to_listen(
    host_of: HostOf, args: str, env: str, url: str, model: str, key: str
) -> None:
    spec = by_name(host_of(RANK.format(args=args, env=env)))["rank/serve/0"]
    params = {c.name: c.params for c in spec.checks}
    assert spec.url == url
    assert params["health"] == {"url": f"{url}/health"}
    assert {k: params["canary"][k] for k in ("url", "model", "key")} == {"url": url, "model": model, "key": key}
    target = vllm.target(spec)
    assert (target.url, target.model, target.key) == (url, model, key)


@pytest.mark.parametrize(
    ("args", "grace"),
    [
        ("{}", 20.0),
        ("{shutdown-timeout: 60}", 70.0),
        ("{shutdown-timeout: false}", 10.0),
        ("{shutdown-timeout: x}", 20.0),
    ],
)
def test_the_grace_covers_the_drain(host_of: HostOf, args: str, grace: float) -> None:
    assert by_name(host_of(RANK.format(args=args, env="{}")))["rank/serve/0"].stop_grace_s == grace


def test_what_a_user_writes_wins_and_false_drops_a_flag(host_of: HostOf) -> None:
    args = "{host: 10.0.0.1, enable-server-load-tracking: false, max-model-len: 4096, enforce-eager: true}"
    spec = by_name(host_of(RANK.format(args=args, env="{PYTHONHASHSEED: 7}")))["rank/serve/0"]
    given = flags(spec.argv)
    assert (given["host"], given["max-model-len"], given["enforce-eager"]) == ("10.0.0.1", "4096", "")
    assert "enable-server-load-tracking" not in given
    assert spec.argv.count("--host") == 1
    assert spec.env["PYTHONHASHSEED"] == "7"
    assert spec.ports[0].host == "10.0.0.1"
