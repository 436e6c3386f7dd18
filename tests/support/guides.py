"""What the deployment guides have people type, process by process, with addresses filled in.

`<IP_ADDRESS>` stands for all addresses where a guide has it for something that listens, and for the node's own in the
proxy's --host.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# What the guides' shell has before a script begins; the containers of the second guide are given the proxy.
SHELL = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/root",
    "LD_LIBRARY_PATH": "/image/lib",
    "http_proxy": "http://proxy:3128",
    "https_proxy": "http://proxy:3128",
}
JSON_FLAGS = ("kv-transfer-config", "additional-config", "speculative-config", "compilation-config")


@dataclass(frozen=True)
class Typed:
    """One process: words before the flags, flags (True for one alone, a list for several words), variables.

    `shell`: what else its script does.
    """

    words: tuple[str, ...]
    flags: Mapping[str, Any]
    env: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    shell: tuple[str, ...] = ()

    def items(self) -> dict[str, Any]:
        """Each thing that can be equal or not, by a name: `--flag`, a path into its JSON, `$VARIABLE`."""
        env = {**SHELL, **self.env}
        found: dict[str, Any] = {"words": self.words}
        for name, value in self.flags.items():
            dashed = f"-{name}" if len(name) == 1 else f"--{name}"
            found |= dict(leaves(dashed, json.loads(value))) if name in JSON_FLAGS else {dashed: value}
        found |= {f"${name}": value for name, value in env.items() if name not in self.unset}
        found |= {f"unset {name}": True for name in self.unset if "proxy" not in name}
        return {**found, **{f"shell: {line}": True for line in self.shell}}


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value of JSON as (path, scalar); an empty mapping or list is a leaf."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(f"{path}/{key}", inner)
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            yield from leaves(f"{path}/{at}", inner)
    else:
        yield path, value


def _flags(text: str) -> dict[str, Any]:
    """`--a 1 --b` on lines as a script has them."""
    found: dict[str, Any] = {}
    for line in filter(None, (row.strip() for row in text.splitlines())):
        name, _, value = line.removeprefix("--").partition(" ")
        found[name] = value.strip().strip("'") or True
    return found


def _etcd(ip: str) -> Typed:
    flags = _flags(f"""
        --name etcd-single
        --data-dir /tmp/etcd-data
        --listen-client-urls http://0.0.0.0:2379
        --advertise-client-urls http://{ip}:2379
        --listen-peer-urls http://0.0.0.0:2380
        --initial-advertise-peer-urls http://{ip}:2380
        --initial-cluster etcd-single=http://{ip}:2380
    """)
    shell = ("> /tmp/etcd.log 2>&1 &", "sleep 3", "etcdctl put key value", "etcdctl get key")
    return Typed(("etcd",), flags, shell=shell)


def _worker(
    ip: str, etcd: str, more: str = "", launcher: Mapping[str, str] | None = None, times: tuple[int, int] = (30, 60)
) -> Typed:
    flags = _flags(f"""
        --worker_address {ip}:18481
        --etcd_address {etcd}:2379
        --shared_memory_size_mb 512000
        --node_timeout_s {times[0]}
        --node_dead_timeout_s {times[1]}
        --liveness_check_path /workspace/liveness
        {more}
    """)
    return Typed(("dscli", "start"), {**(launcher or {}), "w": True, **flags})


GOOGLE = ("GOOGLE_LOGTOSTDERR", "GOOGLE_ALSOLOGTOSTDERR")
W4A8_ENV = {
    "HCCL_OP_EXPANSION_MODE": "AIV",
    "OMP_PROC_BIND": "false",
    "OMP_NUM_THREADS": "1",
    "HCCL_BUFFSIZE": "200",
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    "VLLM_ASCEND_BALANCE_SCHEDULING": "1",
    "VLLM_USE_V1": "1",
    "VLLM_ENGINE_READY_TIMEOUT_S": "1800",
    "PYTHONHASHSEED": "0",
    "DS_H2D_MEMCPY_POLICY": "direct",
    "DS_D2H_MEMCPY_POLICY": "direct",
}
W4A8 = """
    --quantization ascend
    --seed 1024
    --served-model-name glm-5
    --enable-expert-parallel
    --max-num-batched-tokens 4096
    --trust-remote-code
    --gpu-memory-utilization 0.95
    --enable-chunked-prefill
    --enable-prefix-caching
    --async-scheduling
    --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY"}'
    --additional-config '{"multistream_overlap_shared_expert":true}'
    --speculative-config '{"num_speculative_tokens": 3, "method": "deepseek_mtp"}'
"""


def _store_alone(port: str) -> str:
    return f"""{{
      "kv_connector": "AscendStoreConnector",
      "kv_role": "kv_both",
      "kv_connector_extra_config": {{"lookup_rpc_port": "{port}", "backend": "yuanrong"}}
    }}"""


def _w4a8(flags: str, lookup: str, env: Mapping[str, str], tee: str = "tee") -> Typed:
    typed = {**_flags(W4A8 + flags), "kv-transfer-config": _store_alone(lookup)}
    words = ("vllm", "serve", "/home/models/GLM-5-w4a8")
    return Typed(words, typed, {**W4A8_ENV, **env}, GOOGLE, (f"2>&1 | {tee} ./glm-5_yuanrong.log",))


def _network(ip: str, nic: str) -> dict[str, str]:
    names = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")
    return {"HCCL_IF_IP": ip, **dict.fromkeys(names, nic), "DS_WORKER_ADDR": f"{ip}:18481"}


Processes = dict[str, Typed]
"""By `node:component`."""


def a3_single() -> Processes:
    ip = "10.0.0.1"
    flags = """
        --host 0.0.0.0
        --port 1025
        --data-parallel-size 1
        --tensor-parallel-size 16
        --max-num-seqs 8
        --max-model-len 200000
    """
    rank = _w4a8(flags, "0", {"DS_WORKER_ADDR": f"{ip}:18481"})
    return {"n0:etcd": _etcd(ip), "n0:worker": _worker(ip, ip), "n0:rank/serve/0": rank}


def a2_dual() -> Processes:
    both = """
        --host 0.0.0.0
        --data-parallel-size 2
        --data-parallel-size-local 1
        --data-parallel-address 10.0.0.1
        --data-parallel-rpc-port 12890
        --tensor-parallel-size 8
        --max-num-seqs 2
        --max-model-len 131072
    """
    headless = f"{both}--port 1026\n--headless\n--data-parallel-start-rank 1\n"
    return {
        "n0:etcd": _etcd("10.0.0.1"),
        "n0:worker": _worker("10.0.0.1", "10.0.0.1"),
        "n1:worker": _worker("10.0.0.2", "10.0.0.1"),
        "n0:rank/serve/0": _w4a8(f"{both}--port 1025\n", "0", _network("10.0.0.1", "bond0")),
        "n1:rank/serve/1": _w4a8(headless, "1", _network("10.0.0.2", "enp61s0f2"), "tee -a"),
    }


P_NODES = {f"p{at}": f"10.0.0.{at + 1}" for at in range(4)}
D_NODES = {f"d{at}": f"10.0.0.{at + 5}" for at in range(4)}
MOONCAKE_LIB = "/usr/local/Ascend/ascend-toolkit/latest/python/site-packages/mooncake"
W8A8_ENV = {
    # first :/usr/local/lib is put behind, then mooncake before
    "LD_LIBRARY_PATH": f"{MOONCAKE_LIB}:/image/lib:/usr/local/lib",
    "VLLM_ASCEND_ENABLE_MLAPO": "1",
    "VLLM_ASCEND_ENABLE_NZ": "1",
    "HCCL_OP_EXPANSION_MODE": "AIV",
    "OMP_PROC_BIND": "false",
    "OMP_NUM_THREADS": "10",
    "ASCEND_CONNECT_TIMEOUT": "300000",
    "ASCEND_TRANSFER_TIMEOUT": "300000",
    "ASCEND_BUFFER_POOL": "4:8",
    "VLLM_USE_V1": "1",
    "HCCL_BUFFSIZE": "512",
    "HCCL_INTRA_ROCE_ENABLE": "1",
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    "TASK_QUEUE_ENABLE": "1",
    "CPU_AFFINITY_CONF": "1",
    "ASCEND_AGGREGATE_ENABLE": "1",
    "ASCEND_TRANSPORT_PRINT": "1",
    "ACL_OP_INIT_MODE": "1",
    "VLLM_NIXL_ABORT_REQUEST_TIMEOUT": "540",
    "VLLM_ENGINE_READY_TIMEOUT_S": "1800",
    "PYTHONHASHSEED": "0",
}
CLIENT_ENV = {
    "DS_H2D_MEMCPY_POLICY": "direct",
    "DS_D2H_MEMCPY_POLICY": "direct",
    "DATASYSTEM_CLIENT_LOG_DIR": "~/",
    "DATASYSTEM_LOG_ONLY_WRITE_INFO_FILE": "false",
}
W8A8 = """
    --host 0.0.0.0
    --data-parallel-rpc-port 10521
    --enable-expert-parallel
    --enable-chunked-prefill
    --enable-prefix-caching
    --seed 1024
    --served-model-name glm5
    --max-model-len 135168
    --trust-remote-code
    --gpu-memory-utilization 0.92
    --quantization ascend
    --async-scheduling
    --enable-auto-tool-choice
    --tool-call-parser glm47
    --reasoning-parser glm45
    --enable-prompt-tokens-details
    --speculative-config '{"num_speculative_tokens": 3, "method":"deepseek_mtp"}'
"""
PREFILL = """
    --data-parallel-size 4
    --data-parallel-address 10.0.0.1
    --tensor-parallel-size 8
    --max-num-batched-tokens 4096
    --max-num-seqs 48
    --enforce-eager
"""
DECODE = """
    --data-parallel-size 8
    --data-parallel-address 10.0.0.5
    --tensor-parallel-size 4
    --max-num-batched-tokens 32
    --max-num-seqs 32
"""
PREFILL_JSON = {
    "kv-transfer-config": """{
        "kv_connector": "MultiConnector",
        "kv_role": "kv_producer",
        "engine_id": "0",
        "kv_connector_extra_config": {
            "connectors": [
                {
                    "kv_connector": "MooncakeConnectorV1",
                    "kv_role": "kv_producer",
                    "kv_port": "30000",
                    "kv_connector_module_path": "vllm_ascend.distributed.mooncake_connector",
                    "kv_connector_extra_config": {
                        "use_ascend_direct": true,
                        "prefill": {"dp_size": 4, "tp_size": 8},
                        "decode": {"dp_size": 8, "tp_size": 4}
                    }
                },
                {
                    "kv_connector": "AscendStoreConnector",
                    "kv_role": "kv_producer",
                    "kv_connector_extra_config": {"lookup_rpc_port": "0", "backend": "yuanrong"}
                }
            ]
        }
    }""",
    "additional-config": """{
        "recompute_scheduler_enable":true,
        "multistream_overlap_shared_expert":true,
        "fuse_qknorm_rope": false,
        "fuse_muls_add": true,
        "enable_npugraph_ex": true,
        "layer_sharding": ["q_b_proj"]
    }""",
}
DECODE_JSON = {
    "kv-transfer-config": """{
        "kv_connector": "MultiConnector",
        "kv_role": "kv_consumer",
        "kv_connector_extra_config": {
            "connectors": [
                {
                    "kv_connector": "MooncakeConnectorV1",
                    "kv_role": "kv_consumer",
                    "kv_port": "30100",
                    "kv_connector_module_path": "vllm_ascend.distributed.mooncake_connector",
                    "kv_connector_extra_config": {
                        "use_ascend_direct": true,
                        "prefill": {"dp_size": 4, "tp_size": 8},
                        "decode": {"dp_size": 8, "tp_size": 4}
                    }
                },
                {
                    "kv_connector": "AscendStoreConnector",
                    "kv_role": "kv_consumer",
                    "kv_connector_extra_config": {"lookup_rpc_port": "$4", "backend": "yuanrong"}
                }
            ]
        }
    }""",
    "compilation-config": """{
        "cudagraph_capture_sizes": [4,8,12,16,20,24,28,32],
        "cudagraph_mode": "FULL_DECODE_ONLY"
    }""",
    "additional-config": """{
        "recompute_scheduler_enable":true,
        "multistream_overlap_shared_expert":true,
        "fuse_qknorm_rope": true,
        "fuse_muls_add": true,
        "enable_npugraph_ex": true
    }""",
}


def _w8a8(flags: str, more: Mapping[str, str], rank: int, local: int, width: int, env: Mapping[str, str]) -> Typed:
    """As launch_online_dp.py calls run_dp_template.sh: $1 devices, $2 port, $4 rank."""
    devices = ",".join(str(at) for at in range(local * width, (local + 1) * width))
    typed = {name: value.replace("$4", str(rank)) for name, value in more.items()}
    own = f"--port {6600 + local}\n--data-parallel-rank {rank}\n"
    return Typed(
        ("vllm", "serve", "/home/models/GLM-W8A8"),
        {**_flags(W8A8 + flags + own), **typed},
        {**W8A8_ENV, **env, "ASCEND_RT_VISIBLE_DEVICES": devices},
        GOOGLE,
        ("rm -rf ~/ascend", "2>&1 | tee glm.log"),
    )


def _proxy() -> Typed:
    flags = {
        "port": "8000",
        "host": "10.0.0.1",
        "prefiller-hosts": ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
        "prefiller-ports": ["6600", "6600", "6600", "6600"],
        "decoder-hosts": [ip for ip in D_NODES.values() for _ in range(2)],
        "decoder-ports": ["6600", "6601", "6600", "6601", "6600", "6601", "6600", "6601"],
    }
    unset = ("http_proxy", "https_proxy")
    return Typed(("python", "load_balance_proxy_server_example.py"), flags, {}, unset, ("> proxy.log &",))


def pd_8node(client: Mapping[str, str] = CLIENT_ENV, rh2d: bool = False) -> Processes:
    found: Processes = {"p0:etcd": _etcd("10.0.0.1"), "p0:router": _proxy()}
    flashcomm = {"VLLM_ASCEND_ENABLE_FLASHCOMM1": "1"}
    for node, ip in {**P_NODES, **D_NODES}.items():
        found[f"{node}:worker"] = _rh2d_worker(ip) if rh2d else _pd_worker(ip)
        env = {**_network(ip, "enp67s0f0np0"), **client}
        at = int(node[1])
        if node in P_NODES:
            rank = _w8a8(PREFILL, PREFILL_JSON, at, 0, 8, {**env, **flashcomm})
            found[f"{node}:rank/prefill/{at}"] = rank
            continue
        for local in range(2):
            number = 2 * at + local
            found[f"{node}:rank/decode/{number}"] = _w8a8(DECODE, DECODE_JSON, number, local, 4, env)
    return found


def _pd_worker(ip: str) -> Typed:
    return _worker(ip, "10.0.0.1", "--log_only_write_info_file false")


def _rh2d_worker(ip: str) -> Typed:
    more = "--arena_per_tenant 1\n--remote_h2d_device_ids 0,1,2,3,4,5,6,7\n--enable_huge_tlb true\n"
    return _worker(ip, "10.0.0.1", more, {"t": "600"}, (300, 600))


def pd_8node_rh2d() -> Processes:
    """The guide's appendix: its whole set of the datasystem's variables is two."""
    return pd_8node({"DS_ENABLE_REMOTE_H2D": "1"}, rh2d=True)


DEPLOYMENTS = {
    "glm5-w4a8-a3-single": a3_single,
    "glm5-w4a8-a2-dual": a2_dual,
    "glm5-w8a8-a2-pd-8node": pd_8node,
    "glm5-w8a8-a2-pd-8node-rh2d": pd_8node_rh2d,
}
