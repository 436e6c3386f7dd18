"""An imported cluster file gives each program what the scripts gave it; what differs is wanted, and says why."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.typed import Bash, Typed, launched
from yrnode.cli.render import as_dict
from yrnode.components import node as components
from yrnode.config.load import validate
from yrnode.config.scripts.cluster import Imported, imported
from yrnode.config.yaml import parse

HERE = Path(__file__).parent / "scripts"
LEFT = {"GOOGLE_LOGTOSTDERR": "1", "GOOGLE_ALSOLOGTOSTDERR": "1", "LD_LIBRARY_PATH": "/driver/lib64"}
"""What the image's environment holds before a script is run."""

# Flags and variables that yrnode gives beside what is typed.
ADDED = {
    "etcd": {
        *("initial-cluster-token", "initial-cluster-state", "auto-compaction-mode", "auto-compaction-retention"),
        *("quota-backend-bytes", "logger"),
    },
    "worker": {"-t", "-d", "max_log_size", "max_log_file_num"},
    "rank": {"shutdown-timeout", "enable-server-load-tracking", "api-server-count"},
    "router": {"waiting-retry-interval"},
}
# (component, flag or variable) → why it is not as it was typed.
WANTED = {
    ("etcd", "name"): "a member is called like its node",
    ("etcd", "initial-cluster"): "it names members",
    ("etcd", "listen-client-urls"): "it listens on its node's address alone",
    ("etcd", "listen-peer-urls"): "it listens on its node's address alone",
    ("worker", "liveness_check_path"): "yrnode reads the file, and clears it, in its own place",
    ("rank", "port"): "a headless server has no port",
    ("rank", "host"): "a headless server has no port",
    ("rank", "lookup_rpc_port"): "each rank has its own number",
    ("rank", "data-parallel-size"): "one rank alone needs no group",
    ("rank", "DATASYSTEM_CLIENT_LOG_DIR"): "each rank has a folder of its own, not one called ~",
}
SEEN: set[tuple[str, str]] = set()


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    return Bash(tmp_path)


def script(*parts: str) -> str:
    return HERE.joinpath(*parts).read_text()


def bring_in(*files: str, deployment: str | None = None) -> Imported:
    return imported([str(HERE / file) for file in files], deployment)


def rendered(found: Imported) -> dict[tuple[str, str], dict]:
    """(node, component) → argv and env of all that the imported file runs."""
    cluster = validate(parse(found.text.encode(), "c.yaml"), HERE)
    out = {}
    for node in cluster.nodes:
        specs = components.specs(components.host_of(cluster, node, {"PATH": "/usr/bin", "HOME": "/root", **LEFT}))
        for spec, shown in zip(specs, as_dict(node, specs)["components"], strict=True):
            out[node, spec.name] = {**shown, "argv": list(spec.argv), "env": spec.env, "unset": spec.unset}
    return out


def flags(words: list[str] | tuple[str, ...]) -> dict[str, object]:
    """Flags by name; JSON as what it means."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("-") and not word.lstrip("-").isdigit():
            name, equals, value = word.removeprefix("--").partition("=")
            found[name] = [value] if equals else []
        elif name:
            found[name].append(word)
    return {name: [_meant(value) for value in given] for name, given in found.items()}


def _meant(value: str) -> object:
    return json.loads(value) if value.startswith("{") else value


def differences(kind: str, typed: Typed, shown: dict) -> Iterator[tuple[str, object, object]]:
    old, new = flags(typed.argv), flags(shown["argv"])
    for name in old.keys() | (new.keys() - ADDED[kind]):
        if old.get(name) != new.get(name):
            yield name, old.get(name), new.get(name)
    for name, value in typed.env.items():
        if kind in ("rank", "router") and shown["env"].get(name) != value:
            yield name, value, shown["env"].get(name)
    for name in typed.gone:
        if name in shown["env"]:
            yield name, None, shown["env"][name]


def same(kind: str, typed: Typed, shown: dict) -> None:
    left = []
    for name, old, new in differences(kind, typed, shown):
        key = name
        if name == "kv-transfer-config" and without_lookup(old) == without_lookup(new):
            key = "lookup_rpc_port"
        headless = "--headless" in typed.argv
        if (kind, key) in WANTED and (headless or key not in ("port", "host")):
            SEEN.add((kind, key))
        else:
            left.append((name, old, new))
    assert left == []


def without_lookup(value: object) -> object:
    return json.loads(json.dumps(value), object_hook=lambda d: {k: v for k, v in d.items() if k != "lookup_rpc_port"})


def of(program: str, commands: list[Typed]) -> Typed:
    (found,) = [c for c in commands if c.argv[0] == program and "get" not in c.argv and "put" not in c.argv]
    return found


def test_one_machine(bash: Bash) -> None:
    found = bring_in("a3/run_yr.sh", "a3/run_glm5_w4a8_yuanrong_a3.sh")
    assert (found.notes.not_read, found.notes.open) == ([], [])
    shown = rendered(found)
    assert set(shown) == {("n0", "etcd"), ("n0", "worker"), ("n0", "rank/serve/0")}
    below = bash.run(script("a3/run_yr.sh"))
    same("etcd", of("etcd", below), shown["n0", "etcd"])
    same("worker", of("dscli", below), shown["n0", "worker"])
    engine = bash.run(script("a3/run_glm5_w4a8_yuanrong_a3.sh"), before=LEFT)
    same("rank", of("vllm", engine), shown["n0", "rank/serve/0"])
    assert shown["n0", "rank/serve/0"]["argv"][1:3] == ["serve", "/home/models/GLM-5-w4a8"]


def test_two_machines_one_headless(bash: Bash) -> None:
    names = [f"a2/run_glm5_w4a8_yuanrong_a2_node{n}.sh" for n in (0, 1)]
    found = bring_in("a3/run_yr.sh", *names)
    assert (found.notes.not_read, found.notes.open) == ([], [])
    shown = rendered(found)
    assert set(shown) == {("n0", "etcd"), *((f"n{n}", c) for n in (0, 1) for c in ("worker", f"rank/serve/{n}"))}
    for at, name in enumerate(names):
        same("rank", of("vllm", bash.run(script(name), before=LEFT)), shown[f"n{at}", f"rank/serve/{at}"])


PD = [f"pd/{name}" for name in ("run_etcd.sh", "run_yr_worker.sh", "proxy.sh")]
PD += [f"pd/{role}/{name}" for role in "pd" for name in ("run_dp_template.sh", "server.sh")]


def test_eight_machines_prefill_and_decode_apart(bash: Bash) -> None:
    found = bring_in(*PD)
    assert (found.notes.not_read, found.notes.open) == ([], [])
    shown = rendered(found)
    ranks = 0
    for role, group, first in (("p", "prefill", 1), ("d", "decode", 5)):
        for at, line in enumerate(bash.run(script("pd", role, "server.sh"))):
            own = {"<IP_ADDRESS>": f"10.0.0.{first + at}", "--host <IP_ADDRESS>": "--host 0.0.0.0"}
            for args in launched(line.argv):
                template = script("pd", role, "run_dp_template.sh")
                (typed,) = bash.run(template, args, dict(reversed(own.items())), LEFT)
                same("rank", typed, shown[f"{role}{at}", f"rank/{group}/{args[3]}"])
                ranks += 1
    assert ranks == 12
    for at, node in enumerate([f"{role}{n}" for role in "pd" for n in range(4)], 1):
        typed = bash.run(script("pd/run_yr_worker.sh"), filled={"<当前节点IP>": f"10.0.0.{at}"})
        same("worker", of("dscli", typed), shown[node, "worker"])
    same("etcd", of("etcd", bash.run(script("pd/run_etcd.sh"))), shown["p0", "etcd"])
    same("router", of("python", bash.run(script("pd/proxy.sh"))), shown["p0", "router"])
    assert len(shown) == 1 + 8 + 12 + 1


@pytest.mark.parametrize("deployment", ["merged", "separated"])
def test_deploy_env(deployment: str) -> None:
    found = bring_in("cli/deploy_env.sh", deployment=deployment)
    assert (found.notes.not_read, found.notes.open) == ([], [])
    shown = rendered(found)
    common = {
        "trust-remote-code": [],
        "gpu-memory-utilization": ["0.9"],
        "tensor-parallel-size": ["2"],
        "seed": ["1024"],
        "served-model-name": ["qwen"],
    }
    kv = {"kv_connector": "YuanRongConnector"}
    extra = {"additional-config": [{"ascend_scheduler_config": {"enabled": True}}]}
    merged = {
        **common,
        **extra,
        **{"host": ["10.0.1.1"], "port": ["18300"], "no-enable-prefix-caching": []},
        **{"max-num-batched-tokens": ["40000"], "allowed-local-media-path": ["/models/Qwen2.5-7B-Instruct"]},
        "kv-transfer-config": [{**kv, "kv_role": "kv_both"}],
    }
    first = {
        **common,
        **extra,
        **{"host": ["10.0.1.1"], "port": ["18300"], "max-num-batched-tokens": ["45000"]},
        "kv-transfer-config": [{**kv, "kv_role": "kv_producer"}],
    }
    second = {
        **common,
        **{"host": ["10.0.1.2"], "port": ["18301"], "max-num-batched-tokens": ["45000"], "max-num-seqs": ["32"]},
        "kv-transfer-config": [{**kv, "kv_role": "kv_consumer"}],
    }
    wanted = (
        {("n0", "rank/serve/0"): merged}
        if deployment == "merged"
        else {("p0", "rank/prefill/0"): first, ("d0", "rank/decode/0"): second}
    )
    assert {key for key in shown if "rank" in key[1]} == set(wanted)
    for (node, name), typed in wanted.items():
        given = shown[node, name]
        address = typed["host"][0]
        assert {k: v for k, v in flags(given["argv"]).items() if k not in ADDED["rank"]} == typed
        env = {
            "HCCL_IF_IP": address,
            "DS_WORKER_ADDR": f"{address}:32451",
            "DATASYSTEM_CLIENT_LOG_DIR": "/var/log/kv/client_logs",
            "LD_LIBRARY_PATH": "/usr/local/lib/datasystem:/driver/lib64",
            **{"USING_PREFIX_CONNECTOR": "0", "VLLM_USE_V1": "1", "HCL_OP_EXPANSION_MODE": "AIV"},
        }
        assert {name: given["env"].get(name) for name in env} == env
        worker = flags(shown[node, "worker"]["argv"])
        assert {
            k: v for k, v in worker.items() if k in ("shared_memory_size_mb", "enable_worker_worker_batch_get")
        } == {
            "shared_memory_size_mb": ["614400"],
            "enable_worker_worker_batch_get": ["True"],
        }
        assert worker["worker_address"] == [f"{address}:32451"]
        assert worker["etcd_address"] == ["10.0.1.1:35440"]
    if deployment == "separated":
        router = shown["p0", "router"]["argv"]
        assert "/opt/vllm-ascend/examples/load_balance_proxy_server_example.py" in router
        assert {k: v for k, v in flags(router).items() if k not in ADDED["router"]} == {
            **{
                "host": ["10.0.1.1"],
                "port": ["18500"],
                "prefiller-hosts": ["10.0.1.1"],
                "prefiller-ports": ["18300"],
            },
            **{"decoder-hosts": ["10.0.1.2"], "decoder-ports": ["18301"]},
        }


def test_each_wanted_difference_is_there() -> None:
    if len(SEEN) > 3:  # not where one test is run alone
        assert WANTED.keys() - SEEN == set()
