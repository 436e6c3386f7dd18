"""What each component runs, from the cluster file: command lines, places, gates, ports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.components.conftest import BASE, CALLER, PAIR, THREE, HostOf, by_name, flags
from yrnode.components import checks, datasystem, environment, etcd, node
from yrnode.components.host import Host
from yrnode.model.errors import UsageError
from yrnode.model.spec import PortNeed
from yrnode.model.state import Plane

BIN = Path(sys.executable).parent


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
        "rank/serve/0": ["health", "canary", "cache"],
        "rank/serve/1": ["health", "canary", "cache"],
    }


def test_what_may_stop_a_component_by_itself(demo: Host) -> None:
    act = {s.name: [c.name for c in s.checks if c.act and c.watch and not c.witness] for s in node.specs(demo)}
    assert act["etcd"] == ["read"]
    # the ring is the cache group's to judge
    assert act["worker"] == ["key", "kv"]
    assert set(act["rank/serve/0"]) <= {"processes", "health"}


TLS = {"etcd_ca": "/t/ca", "etcd_cert": "/t/c", "etcd_key": "/t/k"}


def test_tls_of_etcd_reaches_the_worker_which_may_have_a_certificate_of_its_own(host_of: HostOf) -> None:
    tls = "  tls: {ca: /t/ca, cert: /t/c, key: /t/k}\n"
    found = by_name(host_of(f"{BASE}etcd:\n{tls}", "n0"))
    worker = flags(found["worker"].argv)
    assert {k: v for k, v in worker.items() if k in TLS} == TLS
    assert (worker["enable_etcd_auth"], worker["etcd_address"]) == ("true", "10.0.0.1:2379")
    own = flags(found["etcd"].argv)
    assert (own["listen-client-urls"], own["peer-key-file"]) == ("https://10.0.0.1:2379", "/t/k")
    assert "client-cert-auth" not in own
    text = f"{BASE}etcd:\n{tls}  auth: {{user: u, password_file: /t/p}}\n"
    text += "datasystem:\n  args: {etcd_cert: /t/wc, etcd_key: /t/wk}\n"
    found = by_name(host_of(text, "n0"))
    worker = flags(found["worker"].argv)
    assert (worker["etcd_ca"], worker["etcd_cert"], worker["etcd_key"]) == ("/t/ca", "/t/wc", "/t/wk")
    assert flags(found["etcd"].argv)["client-cert-auth"] == "true"
    words = [w for spec in found.values() for w in (*spec.argv, *spec.env, *spec.env.values())]
    assert not [w for w in words if "/t/p" in w]


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


def test_the_files_own_flags_of_etcd_go_over_ours(host_of: HostOf) -> None:
    text = BASE + "etcd: {args: {quota-backend-bytes: 16777216, auto-compaction-retention: 5m, snapshot-count: 10}}\n"
    spec = by_name(host_of(text))["etcd"]
    given = flags(spec.argv)
    assert (given["quota-backend-bytes"], given["auto-compaction-retention"], given["snapshot-count"]) == (
        *("16777216", "5m", "10"),
    )
    # etcd before 3.6 does not tell its quota
    assert next(c.params["quota"] for c in spec.checks if c.name == "alarms") == 16777216


def test_etcd_of_three_with_tls(host_of: HostOf) -> None:
    text = """
cluster: c
nodes: {a: {address: 10.0.0.1}, b: {address: 10.0.0.2}, d: {address: 10.0.0.3}, e: {address: 10.0.0.4}}
etcd: {nodes: [a, b, d], data_dir: /data/etcd, tls: {ca: /t/ca.pem, cert: /t/cert.pem, key: /t/key.pem}}
datasystem: {args: {etcd_target_name_override: etcd.c}}
groups: {serve: {ranks: {e: 1}, model: m}}
"""
    found = by_name(host_of(text, "b"))
    assert flags(found["worker"].argv)["etcd_target_name_override"] == "etcd.c"
    given = flags(found["etcd"].argv)
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
    assert given["arena_per_tenant"] == "1"
    assert given["cluster_name"] == "ds2"
    # what the user writes goes over what is derived, and is given once
    assert (given["rpc_thread_num"], given["max_log_size"]) == ("32", "50")
    assert given["enable_worker_worker_batch_get"] == "true"
    assert spec.argv.count("--max_log_size") == 1
    assert next(c.params for c in spec.checks if c.name == "ring") == {
        "address": "10.0.0.1:19000",
        "cluster_name": "ds2",
    }


def test_huge_pages_have_one_arena_unless_the_file_says_another_number(host_of: HostOf) -> None:
    def arenas(more: str) -> str | None:
        return flags(by_name(host_of(f"{BASE}datasystem: {{{more}}}\n"))["worker"].argv).get("arena_per_tenant")

    assert arenas("") is None
    assert arenas("huge_pages: true") == "1"
    assert arenas("huge_pages: true, args: {arena_per_tenant: 8}") == "8"


REMOTE = """datasystem: {huge_pages: true, remote_h2d: [0, 1]}
groups: {serve: {ranks: {n0: 1}, model: m, kv_connector: {ascend_store: {}}, env: {ENV}}}
"""


@pytest.mark.parametrize(
    ("env", "variable", "file"),
    [("", "1", {"enable_remote_h2d": True}), ("DS_ENABLE_REMOTE_H2D: 0", "0", {})],
)
def test_ranks_are_told_of_remote_h2d_twice_and_alike(
    host_of: HostOf, env: str, variable: str, file: dict[str, bool]
) -> None:
    text = BASE[: BASE.index("groups")] + REMOTE.replace("ENV", env)
    spec = by_name(host_of(text))["rank/serve/0"]
    assert spec.env["DS_ENABLE_REMOTE_H2D"] == variable
    (told,) = spec.files.values()
    assert json.loads(told) == {"worker_addr": "10.0.0.1:18481", **file}


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


# checks


def test_the_names_of_all_checks_are_known(demo: Host, host_of: HostOf) -> None:
    specs = [*node.specs(demo), by_name(host_of(with_router("kind: command, argv: /bin/sh")))["router"]]
    specs.append(by_name(host_of(THREE))["etcd"])
    assert {s.kind: tuple(c.name for c in s.checks) for s in specs} == {k: v for k, v in checks.NAMES.items() if v}


def test_the_file_tunes_a_check(host_of: HostOf) -> None:
    tuning = "rank.canary: {period: 50ms, timeout: 5s, mode: observe}, etcd.read: {failures: 9, successes: 2}, "
    tuning += "rank.progress: {stall_timeout: 5m}, etcd.alarms: {mode: act}"
    text = f"{BASE}checks: {{{tuning}}}\n"
    specs = by_name(host_of(text))
    canary = next(c for c in specs["rank/serve/0"].checks if c.name == "canary")
    assert (canary.params["idle_s"], canary.params["answer_s"], canary.gate_period_s) == (0.05, 5.0, 0.05)
    assert canary.period_s < 0.05, "it is looked at more often than an idle rank is asked"
    assert not canary.act
    assert canary.gate, "what only observes later still proves the start"
    progress = next(c for c in specs["rank/serve/0"].checks if c.name == "progress")
    assert progress.params["stall_timeout_s"] == 300.0
    read = next(c for c in specs["etcd"].checks if c.name == "read")
    assert (read.failures, read.successes, read.period_s, read.act) == (9, 2, 1.0, True)
    alarms = next(c for c in specs["etcd"].checks if c.name == "alarms")
    assert not alarms.act, "the file cannot make an observer act"


def test_a_check_that_there_is_not_is_refused_on_every_node(host_of: HostOf) -> None:
    tuning = "rank.progres: {}, etcd.read: {period: 2s}, node.disk: {}, rank.canary: {stall_timeout: 9s}"
    text = f"{PAIR}checks: {{{tuning}}}\n"
    for name in ("n0", "n1"):
        with pytest.raises(UsageError) as e:
            node.specs(host_of(text, name))
        assert e.value.lines == (
            "checks.rank.progres: there is no such check; write one of "
            "rank.process, rank.processes, rank.health, rank.engine, rank.progress, rank.canary, rank.cache",
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
