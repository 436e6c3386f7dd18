"""What each component runs, from the cluster file: command lines, places, gates, ports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.components.conftest import CALLER, HostOf, by_name, flags
from yrnode.components import checks, datasystem, environment, etcd, node, vllm
from yrnode.components.host import Host
from yrnode.model.errors import UsageError
from yrnode.model.spec import PortNeed
from yrnode.model.state import Plane

BIN = Path(sys.executable).parent

BASE = """
cluster: c
nodes: {n0: {address: 10.0.0.1}}
groups: {serve: {ranks: {n0: 1}, model: /models/m}}
"""
PAIR = """
cluster: c
nodes: {n0: {address: 10.0.0.1}, n1: {address: 10.0.0.2}}
etcd: {nodes: [n1]}
groups:
  serve: {ranks: {n0: 1, n1: 2}, model: /models/m, port: 7000, rpc_port: 9500, tensor_parallel: 4}
"""


def test_the_demos_components_in_order_of_start(demo: Host) -> None:
    specs = node.specs(demo)
    assert [(s.name, s.kind, s.plane, s.group, s.rank) for s in specs] == [
        ("etcd", "etcd", Plane.STORE, None, None),
        ("worker", "worker", Plane.CACHE, None, None),
        ("rank/serve/0", "rank", Plane.ENGINE, "serve", 0),
        ("rank/serve/1", "rank", Plane.ENGINE, "serve", 1),
    ]
    state = demo.places.state_dir
    assert [s.dir for s in specs] == [state / n for n in ("etcd", "worker", "rank-serve-0", "rank-serve-1")]
    assert len({s.log for s in specs}) == 4
    assert {s.log.parent for s in specs} == {demo.places.log_dir}


def test_every_component_is_gated_by_proof(demo: Host) -> None:
    gates = {s.name: [c.name for c in s.gates] for s in node.specs(demo)}
    assert gates == {
        "etcd": ["write"],
        "worker": ["key", "ring", "kv"],
        "rank/serve/0": ["health", "canary"],
        "rank/serve/1": ["health", "canary"],
    }


def test_what_may_stop_a_component_by_itself(demo: Host) -> None:
    act = {s.name: [c.name for c in s.checks if c.act and c.watch] for s in node.specs(demo)}
    assert act["etcd"] == ["read"]
    # the ring and the key are the cache group's to judge
    assert act["worker"] == ["kv"]
    assert set(act["rank/serve/0"]) <= {"processes", "health"}


# etcd


def test_etcd(demo: Host) -> None:
    spec = by_name(demo)["etcd"]
    assert spec.argv[0] == str(BIN / "etcd")
    data = str(demo.places.state_dir / "etcd")
    assert flags(spec.argv) == {
        "name": "n0",
        "data-dir": data,
        "listen-client-urls": "http://127.0.0.1:23579",
        "advertise-client-urls": "http://127.0.0.1:23579",
        "listen-peer-urls": "http://127.0.0.1:23580",
        "initial-advertise-peer-urls": "http://127.0.0.1:23580",
        "initial-cluster": "n0=http://127.0.0.1:23580",
        "initial-cluster-token": "demo",
        "initial-cluster-state": "new",
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
        "quota-backend-bytes": str(etcd.QUOTA_BYTES),
        "logger": "zap",
    }
    assert str(spec.data_dir) == data
    assert spec.ports == (
        PortNeed("127.0.0.1", 23579, "etcd.client_port"),
        PortNeed("127.0.0.1", 23580, "etcd.peer_port"),
    )
    assert spec.url == "http://127.0.0.1:23579"
    assert {c.params["key"] for c in spec.checks if c.name in ("read", "write")} == {"/yrnode/demo/probe/n0"}


def test_etcd_of_three_with_tls(host_of: HostOf) -> None:
    text = """
cluster: c
nodes: {a: {address: 10.0.0.1}, b: {address: 10.0.0.2}, d: {address: 10.0.0.3}, e: {address: 10.0.0.4}}
etcd: {nodes: [a, b, d], data_dir: /data/etcd, tls: {ca: /t/ca.pem, cert: /t/cert.pem, key: /t/key.pem}}
groups: {serve: {ranks: {e: 1}, model: m}}
"""
    given = flags(by_name(host_of(text, "b"))["etcd"].argv)
    assert given["initial-cluster"] == "a=https://10.0.0.1:2380,b=https://10.0.0.2:2380,d=https://10.0.0.3:2380"
    assert (given["name"], given["data-dir"]) == ("b", "/data/etcd")
    for side in ("", "peer-"):
        assert given[f"{side}trusted-ca-file"] == "/t/ca.pem"
        assert (given[f"{side}cert-file"], given[f"{side}key-file"]) == ("/t/cert.pem", "/t/key.pem")
    assert "etcd" not in by_name(host_of(text, "e"))
    worker = flags(by_name(host_of(text, "e"))["worker"].argv)
    assert worker["etcd_address"] == "10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379"


# the worker


def test_the_worker(demo: Host) -> None:
    spec = by_name(demo)["worker"]
    directory = demo.places.state_dir / "worker"
    head, tail = spec.argv[: spec.argv.index("-w")], spec.argv[spec.argv.index("-w") + 1 :]
    # dscli takes its own options before -w only
    assert head == (str(BIN / "dscli"), "start", "-t", "90", "-d", str(directory))
    assert flags(tail) == {
        "worker_address": "127.0.0.1:24881",
        "etcd_address": "127.0.0.1:23579",
        "shared_memory_size_mb": "512",
        "node_timeout_s": "5",
        "node_dead_timeout_s": "10",
        "liveness_check_path": str(directory / "liveness"),
        "max_log_size": "100",
        "max_log_file_num": "5",
    }
    assert spec.launcher
    assert spec.start_timeout_s > 90
    assert spec.ports == (PortNeed("127.0.0.1", 24881, "datasystem.port"),)
    assert set(spec.stale) == {directory / "datasystem/probe", directory / "datasystem/uds", directory / "liveness"}
    # `dscli stop` of anybody must not find us by it
    assert not any("-worker_address=" in word for word in spec.argv)


def test_the_workers_probe_runs_with_the_python_that_has_the_sdk(demo: Host) -> None:
    params = next(c.params for c in by_name(demo)["worker"].checks if c.name == "kv")
    # dscli's own first line, which need not name the same link as this interpreter
    assert (Path(params["python"]).resolve(), params["host"], params["port"]) == (
        Path(sys.executable).resolve(),
        "127.0.0.1",
        24881,
    )
    assert params["env"]["DATASYSTEM_CLIENT_LOG_DIR"] == str(demo.places.log_dir / "datasystem-probe")
    assert "no_proxy" in params["env"]


def test_every_key_of_the_datasystem(host_of: HostOf) -> None:
    spec = by_name(
        host_of(
            BASE
            + """
datasystem:
  port: 19000
  shared_memory: 2GB
  node_timeout: 30s
  node_dead_timeout: 1m
  start_timeout: 2m
  huge_pages: true
  remote_h2d: [0, 1]
  numa: {interleave: 0-7, localalloc: true}
  cluster_name: ds2
  args: {rpc_thread_num: 32, max_log_size: 50, enable_worker_worker_batch_get: true}
"""
        )
    )["worker"]
    split = spec.argv.index("-w")
    assert spec.argv[1:split] == (
        *("start", "-t", "120", "-d", str(spec.dir)),
        *("--interleave", "0-7", "--localalloc"),
    )
    given = flags(spec.argv[split + 1 :])
    assert given["shared_memory_size_mb"] == "2048"
    assert (given["node_timeout_s"], given["node_dead_timeout_s"]) == ("30", "60")
    assert (given["enable_huge_tlb"], given["remote_h2d_device_ids"]) == ("true", "0,1")
    assert given["cluster_name"] == "ds2"
    # what the user writes goes over what is derived, and is given once
    assert (given["rpc_thread_num"], given["max_log_size"]) == ("32", "50")
    assert given["enable_worker_worker_batch_get"] == "true"
    assert spec.argv.count("--max_log_size") == 1
    assert next(c.params for c in spec.checks if c.name == "ring") == {
        "address": "10.0.0.1:19000",
        "cluster_name": "ds2",
    }


def script(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "dscli"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("#!/opt/ds/bin/python\nimport sys\n", "/opt/ds/bin/python"),
        ("#! /opt/ds/bin/python3.11 -s\n", "/opt/ds/bin/python3.11"),
        ("#!/usr/bin/env python3\n", "python3"),
        ("#!/usr/bin/env -S A=1 python3.10 -u\n", "python3.10"),
        ("#!/bin/sh\n'''exec' \"/long/path/python\" \"$0\" \"$@\"\n' '''\nimport sys\n", "/long/path/python"),
        ("#!/bin/sh\n'''exec' /long/path/python \"$0\" \"$@\"\n", "/long/path/python"),
        ("#!/bin/sh\n'''exec' '/with blanks/bin/python' \"$0\" \"$@\"\n", "/with blanks/bin/python"),
        ("#!/bin/sh\n\"unclosed\n'\n", "python3"),
        ("#!/bin/sh\n", "python3"),
        ("#!\n", "python3"),
        ("#!/usr/bin/env\n", "python3"),
        (b"\x7fELF\x02\x01", "python3"),
        ("", "python3"),
    ],
)
def test_the_interpreter_of_dscli(tmp_path: Path, text: str | bytes, python: str) -> None:
    assert datasystem.sdk_python((script(tmp_path, text),)) == python


def test_the_interpreter_of_a_list_of_words_and_of_nothing(tmp_path: Path) -> None:
    words = ("/opt/ds/bin/python", "-m", "yr.datasystem.cli.command")
    assert datasystem.sdk_python(words) == "/opt/ds/bin/python"
    assert datasystem.sdk_python((str(tmp_path / "none"),)) == "python3"


# ranks


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
    assert params["canary"] == {"url": url, "model": model, "key": key}
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


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("mode: headless", "groups.serve.mode: headless is not supported by this version; use external"),
        (
            "peer: other, role: producer, kv_connector: {mooncake: {}}",
            "groups.serve.kv_connector: mooncake is not supported by this version",
        ),
    ],
)
def test_what_this_version_cannot_run_is_said(host_of: HostOf, more: str, words: str) -> None:
    text = BASE.replace("model: /models/m}", f"model: /models/m, {more}}}").replace(
        "groups: {", "groups: {other: {ranks: {n0: 1}, model: m, role: consumer, port: 7000, devices: {n0: [5]}}, "
    )
    with pytest.raises(UsageError) as e:
        node.specs(host_of(text))
    assert str(e.value) == words


# the router


def with_router(more: str) -> str:
    return f"{BASE}router: {{node: n0, port: 8000, {more}}}\n"


def test_a_router_of_the_users_own(host_of: HostOf) -> None:
    command = 'kind: command, argv: [/bin/sh, -c, "proxy $PORT"], health: /healthcheck'
    more = command + ', args: {retries: 3, quiet: true}, env: {A: "1"}'
    spec = by_name(host_of(with_router(more)))["router"]
    assert spec.argv == ("/bin/sh", "-c", "proxy $PORT", "--retries", "3", "--quiet")
    assert spec.env["A"] == "1"
    assert (spec.plane, spec.url) == (Plane.ROUTER, "http://10.0.0.1:8000")
    assert [c.params.get("url") for c in spec.gates] == ["http://10.0.0.1:8000/healthcheck"]
    assert spec.ports == (PortNeed("10.0.0.1", 8000, "router.port"),)


def test_another_kind_of_router_is_not_supported(host_of: HostOf) -> None:
    with pytest.raises(UsageError, match=r"^router\.kind: vllm-router is not supported by this version; use command"):
        node.specs(host_of(with_router("kind: vllm-router")))


# checks


def test_the_names_of_all_checks_are_known(demo: Host, host_of: HostOf) -> None:
    specs = [*node.specs(demo), by_name(host_of(with_router("kind: command, argv: /bin/sh")))["router"]]
    assert {s.kind: tuple(c.name for c in s.checks) for s in specs} == {k: v for k, v in checks.NAMES.items() if v}


def test_the_file_tunes_a_check(host_of: HostOf) -> None:
    tuning = "rank.canary: {period: 50ms, timeout: 5s, mode: observe}, etcd.read: {failures: 9, successes: 2}"
    text = f"{BASE}checks: {{{tuning}}}\n"
    specs = by_name(host_of(text))
    canary = next(c for c in specs["rank/serve/0"].checks if c.name == "canary")
    assert (canary.period_s, canary.gate_period_s, canary.timeout_s, canary.act) == (0.05, 0.05, 5.0, False)
    assert canary.gate, "what only observes later still proves the start"
    read = next(c for c in specs["etcd"].checks if c.name == "read")
    assert (read.failures, read.successes, read.period_s, read.act) == (9, 2, 1.0, True)
    process = next(c for c in specs["etcd"].checks if c.name == "process")
    assert not process.act, "the file cannot make an observer act"


def test_a_check_that_there_is_not_is_refused_on_every_node(host_of: HostOf) -> None:
    tuning = "rank.progres: {}, etcd.read: {period: 2s}, node.disk: {}, rank.canary: {stall_timeout: 9s}"
    text = f"{PAIR}checks: {{{tuning}}}\n"
    for name in ("n0", "n1"):
        with pytest.raises(UsageError) as e:
            node.specs(host_of(text, name))
        assert e.value.lines == (
            "checks.rank.progres: there is no such check; write one of "
            "rank.process, rank.processes, rank.health, rank.canary",
            "checks.node.disk: there is no such check; write one of " + ", ".join(ALL_CHECKS),
            "checks.rank.canary.stall_timeout: this check does not have it; remove it",
        )


ALL_CHECKS = [f"{kind}.{name}" for kind, names in checks.NAMES.items() for name in names]


# programs


def test_programs_beside_yrnodes_own_python_come_first(tmp_path: Path) -> None:
    etcd_there = tmp_path / "etcd"
    etcd_there.write_text("#!/bin/sh\n")
    etcd_there.chmod(0o700)
    assert environment.find_program(("etcd", "x"), {"PATH": str(tmp_path)}) == (str(BIN / "etcd"), "x")
    assert environment.find_program(("no-such",), CALLER) == ("no-such",)
    env = environment.with_program({"PATH": "/a:/b"}, ("/opt/ds/bin/dscli",))
    assert env == {"PATH": "/opt/ds/bin:/a:/b"}
    assert environment.with_program({"PATH": "/a:/b"}, ("/b/x",)) == {"PATH": "/b:/a"}
    assert environment.with_program({"PATH": "/a"}, ("unresolved",)) == {"PATH": "/a"}


def test_output_files_of_a_worker_include_its_own_log(demo: Host) -> None:
    specs = by_name(demo)
    logs = specs["worker"].dir / "datasystem/logs"
    assert node.output_files(specs["worker"]) == [specs["worker"].log]
    logs.mkdir(parents=True)
    (logs / "datasystem_worker.INFO.log").write_text("x")
    assert node.output_files(specs["worker"]) == [specs["worker"].log, logs / "datasystem_worker.INFO.log"]
    assert node.output_files(specs["etcd"]) == [specs["etcd"].log]
