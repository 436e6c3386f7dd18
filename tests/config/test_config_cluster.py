"""Good cluster files, what they become, and the schema."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from yrnode.config.cluster import Cluster
from yrnode.config.load import load, validate
from yrnode.config.yaml import parse

HERE = Path(__file__).resolve().parents[2] / "config"
ALL_KEYS = """\
cluster: glm5-pd
nodes:
  p0: {address: 10.0.0.1, nic: enp67s0f0np0}
  p1: {address: 10.0.0.2}
  p2: {address: 10.0.0.3}
  p3: {address: 10.0.0.4}
  d0: {address: 10.0.0.5}
  d1: {address: 10.0.0.6}
  d2: {address: 10.0.0.7}
  d3:
    address: 10.0.0.8
    env: {HCCL_BUFFSIZE: 1024}
    api: {listen: "127.0.0.1:8471"}
    state_dir: s
    run_dir: r
    log_dir: l
bin: {vllm: vllm, dscli: ./dscli, etcd: [etcd, --logger, zap], python: python3, vllm_router: vllm-router}
env_from: [/usr/local/Ascend/ascend-toolkit/set_env.sh, local.sh]
env: {PYTHONHASHSEED: 0, OMP_PROC_BIND: false, RATIO: 0.90, HEX: 0x10, PATH: "/a:${PATH}:/b", EMPTY: ""}
etcd:
  nodes: [p0, p1, p2]
  client_port: 2379
  peer_port: 2380
  data_dir: /var/lib/yrnode/etcd
  client: gateway
  tls: {ca: ca.pem, cert: cert.pem, key: key.pem}
  auth: {user: root, password_file: /etc/yrnode/password}
  args: {snapshot-count: 10000}
datasystem:
  port: 18481
  shared_memory: 512000MB
  node_timeout: 30s
  node_dead_timeout: 60s
  start_timeout: 90s
  huge_pages: true
  remote_h2d: [0, 1]
  numa: {interleave: 0-7, localalloc: true, cpunodebind: 0, physcpubind: 0-3, preferred: 1, membind: "0,1"}
  cluster_name: ""
  on_worker_restart: group
  args:
    rpc_thread_num: 16
    log_async: true
    etcd_cert: /etc/yrnode/worker.pem
    etcd_key: /etc/yrnode/worker.key
    etcd_target_name_override: etcd.glm5
groups:
  prefill:
    ranks: {p0: 1, p1: 1, p2: 1, p3: 1}
    tensor_parallel: 8
    devices: {p0: [8, 9, 10, 11, 12, 13, 14, 15]}
    mode: external
    role: producer
    peer: decode
    port: 6600
    rpc_port: 10521
    model: /home/models/GLM-W8A8
    args:
      {max-model-len: 135168, enforce-eager: true, async_scheduling: false, additional-config: {fuse_muls_add: true}}
    env: {VLLM_ASCEND_ENABLE_MLAPO: 1}
    unset: [GOOGLE_LOGTOSTDERR]
    kv_connector:
      mooncake: {kv_port: 30000, engine_id: "0", use_ascend_direct: true, extra: {a: 1}}
      ascend_store: {backend: yuanrong, extra: {b: [1, 2.5]}}
    start_timeout: 30m
    restart_with: [decode]
    nodes: {p1: {args: {seed: 1}, env: {A: b}}}
  decode:
    ranks: {d0: 2, d1: 2, d2: 2, d3: 2}
    tensor_parallel: 4
    role: consumer
    peer: prefill
    port: 6600
    model: ./models/GLM-W8A8
    kv_connector: {mooncake: {kv_port: 30100, engine_id: 1}}
router:
  node: p0
  port: 8000
  kind: ascend-proxy
  script: load_balance_proxy_server_example.py
  prefill: prefill
  decode: decode
  args: {log-level: debug}
  env: {A: 1}
checks:
  rank.canary: {period: 30s, timeout: 10s, failures: 2, successes: 1, mode: act}
  rank.progress: {stall_timeout: 180s, mode: observe}
api: {listen: 127.0.0.1:8470}
state_dir: /var/lib/yrnode
run_dir: run
log_dir: ../log
"""


def cluster_of(text: str, base: str = "/etc/yrnode") -> Cluster:
    return validate(parse(text.encode(), "c.yaml"), Path(base))


@pytest.fixture(scope="module")
def full() -> Cluster:
    return cluster_of(ALL_KEYS)


def test_the_example_with_all_keys_uses_every_key(full: Cluster) -> None:
    parts: list[BaseModel] = [full, full.nodes["d3"], full.bin, full.etcd, full.datasystem, full.datasystem.numa]
    parts += [full.groups["prefill"], full.groups["prefill"].nodes["p1"], full.checks["rank.canary"]]
    left = {
        f"{type(part).__name__}.{key}"
        for part in parts
        for key in type(part).model_fields.keys() - part.model_fields_set
    }
    # The exclusive ones: another node, another router, another check, or instead of `nodes`.
    assert left == {"Node.nic", "Etcd.external", "Check.stall_timeout"}


def test_values_become_what_the_program_counts_with(full: Cluster) -> None:
    assert full.cluster == "glm5-pd"
    assert list(full.nodes) == ["p0", "p1", "p2", "p3", "d0", "d1", "d2", "d3"]
    assert full.nodes["p0"].nic == "enp67s0f0np0"
    assert full.bin.vllm == ("vllm",)
    assert full.bin.dscli == ("/etc/yrnode/dscli",)
    assert full.bin.etcd == ("etcd", "--logger", "zap")
    assert full.env_from == (Path("/usr/local/Ascend/ascend-toolkit/set_env.sh"), Path("/etc/yrnode/local.sh"))
    assert full.env == {
        "PYTHONHASHSEED": "0",
        "OMP_PROC_BIND": "false",
        "RATIO": "0.90",
        "HEX": "0x10",
        "PATH": "/a:${PATH}:/b",
        "EMPTY": "",
    }
    assert full.etcd.nodes == ("p0", "p1", "p2")
    assert full.etcd.tls is not None
    assert full.etcd.tls.ca == Path("/etc/yrnode/ca.pem")
    data = full.datasystem
    assert (data.shared_memory, data.node_timeout, data.node_dead_timeout) == (512000 * 1024 * 1024, 30.0, 60.0)
    assert data.remote_h2d == (0, 1)
    assert (data.numa.interleave, data.numa.cpunodebind) == ("0-7", "0")
    assert (data.args["rpc_thread_num"], data.args["log_async"]) == ("16", "true")
    prefill, decode = full.groups["prefill"], full.groups["decode"]
    assert list(prefill.ranks.items()) == [("p0", 1), ("p1", 1), ("p2", 1), ("p3", 1)]
    assert prefill.args == {
        "max-model-len": "135168",
        "enforce-eager": True,
        "async-scheduling": False,
        "additional-config": {"fuse_muls_add": True},
    }
    assert decode.model == "/etc/yrnode/models/GLM-W8A8"
    assert decode.start_timeout == 1800.0
    assert decode.kv_connector.mooncake is not None
    assert (decode.kv_connector.mooncake.kv_port, decode.kv_connector.mooncake.engine_id) == (30100, "1")
    assert decode.kv_connector.ascend_store is None
    assert full.router is not None
    assert full.router.script == Path("/etc/yrnode/load_balance_proxy_server_example.py")
    assert full.checks["rank.canary"].period == 30.0
    assert (full.api.host, full.api.port) == ("127.0.0.1", 8470)
    assert (full.run_dir, full.log_dir) == (Path("/etc/yrnode/run"), Path("/etc/log"))


def test_all_but_cluster_nodes_and_a_group_has_a_default() -> None:
    small = cluster_of("cluster: a\nnodes: {n0: {address: 10.0.0.1}}\ngroups: {g: {ranks: {n0: 1}, model: demo}}\n")
    assert small.groups["g"].model == "demo"
    assert small.groups["g"].start_timeout == 1800.0
    assert small.datasystem.shared_memory == 1024 * 1024 * 1024
    assert (small.datasystem.node_timeout, small.datasystem.node_dead_timeout) == (30.0, 60.0)
    assert small.router is None
    assert small.run_dir == Path("/run/yrnode")
    assert (small.bin.vllm, small.bin.dscli, small.bin.etcd) == (("vllm",), ("dscli",), ("etcd",))


def test_a_cluster_cannot_be_changed(full: Cluster) -> None:
    with pytest.raises(ValidationError):
        full.cluster = "other"  # type: ignore[misc]


@pytest.mark.parametrize("file", sorted(HERE.glob("*.yaml")), ids=lambda file: file.name)
def test_every_shipped_file_loads_and_is_short(file: Path) -> None:
    load(file)
    rows = [line.strip() for line in file.read_text().splitlines()]
    assert len([row for row in rows if row and not row.startswith("#")]) < 60


def test_the_shipped_files() -> None:
    assert {file.name for file in HERE.iterdir()} == {
        "glm5-w4a8-a2-dual.yaml",
        "glm5-w4a8-a3-single.yaml",
        "glm5-w8a8-a2-pd-8node-rh2d.yaml",
        "glm5-w8a8-a2-pd-8node.yaml",
        "local-demo.yaml",
        "production-etcd3.yaml",
    }


def test_the_demo_file_is_small_and_out_of_the_ephemeral_ports_way() -> None:
    demo = load(HERE / "local-demo.yaml")
    assert len((HERE / "local-demo.yaml").read_text().splitlines()) < 60
    assert demo.state_dir == HERE / "state"
    assert demo.bin.vllm == ("python", "-m", "yrnode.demo.engine")
    ports = [
        demo.etcd.client_port,
        demo.etcd.peer_port,
        demo.datasystem.port,
        demo.groups["serve"].port,
        demo.api.port,
    ]
    assert all(20000 <= port < 32768 for port in ports)


def test_the_shipped_prefill_decode_file_shares_arguments_between_groups() -> None:
    groups = load(HERE / "glm5-w8a8-a2-pd-8node.yaml").groups
    assert groups["decode"].args["tool-call-parser"] == "glm47"
    assert groups["decode"].args["enforce-eager"] is False
    assert groups["decode"].args["additional-config"]["fuse_qknorm_rope"] is True
    assert groups["prefill"].args["additional-config"]["fuse_qknorm_rope"] is False


def test_a_cluster_reads_back_from_its_own_json(full: Cluster) -> None:
    for text in (full.model_dump_json(), json.dumps(full.model_dump(mode="json"))):
        assert Cluster.model_validate(json.loads(text)) == full


NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True).filter(
    lambda name: name not in ("all", "cache", "etcd", "worker", "router", "g")
)
JSON = st.recursive(
    st.booleans() | st.integers(-(10**9), 10**9) | st.text(alphabet="ab ,\"'{}\n集", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="abc", min_size=1), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    nodes=st.lists(NAMES, min_size=1, max_size=4, unique=True),
    args=st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), JSON, max_size=4),
    env=st.dictionaries(
        st.from_regex(r"[A-D][A-D_]{0,4}", fullmatch=True), st.booleans() | st.integers() | st.text("a$ ")
    ),
    shared=st.integers(1, 10**6),
    timeout=st.integers(1, 10**4),
)
def test_any_cluster_reads_back_from_yaml_and_from_json(
    nodes: list[str], args: dict[str, Any], env: dict[str, Any], shared: int, timeout: int
) -> None:
    # JSON is YAML: what json writes is a cluster file too.
    text = json.dumps(
        {
            "cluster": "a",
            "nodes": {name: {"address": f"10.0.0.{at + 1}"} for at, name in enumerate(nodes)},
            "env": env,
            "datasystem": {
                "shared_memory": f"{shared}MB",
                "node_timeout": f"{timeout}s",
                "node_dead_timeout": f"{timeout + 1}s",
            },
            "groups": {"g": {"ranks": dict.fromkeys(nodes, 1), "model": "m", "args": args}},
        }
    )
    cluster = cluster_of(text)
    assert list(cluster.groups["g"].ranks) == nodes
    assert cluster.datasystem.shared_memory == shared * 1024 * 1024
    assert Cluster.model_validate(json.loads(cluster.model_dump_json())) == cluster


def test_the_schema_describes_every_key_and_shows_units() -> None:
    schema = Cluster.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    for model in models:
        assert model["additionalProperties"] is False
        assert model["description"]
        for key, value in model.get("properties", {}).items():
            assert value.get("description"), (model["title"], key)
    timeout = schema["$defs"]["Datasystem"]["properties"]["node_timeout"]
    assert (timeout["default"], timeout["pattern"]) == ("30s", r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)$")
    assert schema["$defs"]["Datasystem"]["properties"]["shared_memory"]["default"] == "1024MB"
    assert schema["required"] == ["cluster", "nodes", "groups"]
    json.dumps(schema)
