"""Bad cluster files: each says in one line where it is and what to write."""

from pathlib import Path

import pytest

from yrnode.config.load import load
from yrnode.model.errors import UsageError

GROUP = "groups: {serve: {ranks: {n0: 1}, model: m}}\n"
HEAD = "cluster: demo\nnodes: {n0: {address: 10.0.0.1}, n1: {address: 10.0.0.2}}\n"
FILE = HEAD + GROUP
PAIR = """\
groups:
  p: {ranks: {n0: 1}, model: m, role: producer, peer: d, kv_connector: {mooncake: {}}}
  d: {ranks: {n1: 2}, model: m, role: consumer, peer: p, kv_connector: {mooncake: {}}}
"""
SHARED = """\
groups:
  p: {ranks: {n0: 1}, model: m, role: producer, peer: d, kv_connector: {mooncake: {}}}
  d: {ranks: {n0: 1}, model: m, role: consumer, peer: p, port: 7000, devices: {n0: [1]}, kv_connector: {mooncake: {}}}
"""
HCCL = """\
groups:
  a: {ranks: {n0: 1}, model: m, tensor_parallel: 2}
  b: {ranks: {n0: 1}, model: m, tensor_parallel: 2, port: 7000, devices: {n0: [2, 3]}}
"""
ROLES = (
    "{kv_role: kv_producer, kv_connector_extra_config: {connectors: [{kv_role: kv_producer}, {kv_role: kv_both}]}}"
)


def group(text: str) -> str:
    return f"{HEAD}groups:\n  serve:\n    model: m\n    {text}\n"


def faults(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load("c.yaml")
    return caught.value.lines


WRONG_VALUES = {
    "{}": "1: cluster: it is missing; write cluster: …",
    "cluster: Demo\nnodes: {n0: {address: 10.0.0.1}}\n"
    + GROUP: '1: cluster: "Demo" does not fit; write small letters, '
    "digits, - _ or ., and begin with a letter or digit",
    "cluster: 5\nnodes: {n0: {address: 10.0.0.1}}\n" + GROUP: "1: cluster: 5 is a number; write text, "
    "in quotes if it looks like a number",
    f"cluster: {'a' * 64}\nnodes: {{n0: {{address: 10.0.0.1}}}}\n{GROUP}": f'1: cluster: "{"a" * 57}…" is too long; '
    "write at most 63 characters",
    "cluster: a\nnodes: {}\n" + GROUP: "2: nodes: it is empty; add at least one",
    "cluster: a\nnodes: {n0: 10.0.0.1}\n" + GROUP: '2: nodes.n0: "10.0.0.1" is text; write a mapping, key: value',
    "cluster: a\nnodes: {n0: {address: host}}\n" + GROUP: '2: nodes.n0.address: "host" is no IPv4 address; '
    "write one such as 10.0.0.1",
    "cluster: a\nnodes: {n0: {address: 0.0.0.0}}\n" + GROUP: "2: nodes.n0.address: 0.0.0.0 names no host; "
    "write the address that the other nodes reach",
    "cluster: a\nnodes: {../n0: {address: 10.0.0.1}}\n" + GROUP: '2: nodes.../n0: "../n0" does not fit; write small '
    "letters, digits, - _ or ., and begin with a letter or digit",
    FILE + "grups: {}\n": "4: grups: this key is unknown; did you mean groups?",
    FILE + "etcd:\n": "4: etcd: it has no value; write one or remove the key",
    group(
        "ranks: {n0: 1}\n    kv_connector:\n      ascend_store:"
    ): "8: groups.serve.kv_connector.ascend_store: it has no value; write {} for its defaults, or remove the key",
    FILE + "router:\n": "4: router: it has no value; write one or remove the key",
    FILE + "etcd: {nodes: n0}\n": '4: etcd.nodes: "n0" is text; write a list, [a, b]',
    FILE + "etcd: {client_port: 0}\n": "4: etcd.client_port: 0 is out of range; write a port from 1 to 65535",
    FILE + "etcd: {client_port: 70000}\n": "4: etcd.client_port: 70000 is out of range; write a port from 1 to 65535",
    FILE
    + 'etcd: {client_port: "2379"}\n': '4: etcd.client_port: "2379" is text; write a whole number without quotes',
    FILE
    + "etcd: {client_port: 2379.5}\n": "4: etcd.client_port: 2379.5 is a number; write a whole number without quotes",
    FILE
    + "etcd: {client_port: true}\n": "4: etcd.client_port: true is a boolean; write a whole number without quotes",
    FILE + "etcd: {external: [10.0.0.9:2379]}\n": '4: etcd.external[0]: "10.0.0.9:2379" is no endpoint; '
    "write one such as http://10.0.0.9:2379",
    FILE + "etcd: {external: ['http://me:pw@10.0.0.9:2379']}\n": '4: etcd.external[0]: "http://me:pw@10.0.0.9:2379" '
    "is no endpoint; write one such as http://10.0.0.9:2379",
    FILE + "etcd:\n  auth: {user: root, password: x}\n": "5: etcd.auth.password: this key is unknown; "
    "did you mean password_file?",
    FILE + "datasystem: {node_timeout: 30}\n": "4: datasystem.node_timeout: 30 has no unit; write 30s for seconds, "
    "or use ms, m or h",
    FILE + "datasystem: {shared_memory: 512000}\n": "4: datasystem.shared_memory: 512000 has no unit; "
    "write 512000MB, or use KB, GB or TB",
    FILE + "datasystem:\n\n  huge_pages: yes\n": '6: datasystem.huge_pages: "yes" is text; write true or false',
    FILE + "datasystem: {numa: {interleave: a}}\n": '4: datasystem.numa.interleave: "a" does not fit; '
    "write numbers such as 0-7 or 0,2",
    FILE + "datasystem: {args: {--v: 1}}\n": '4: datasystem.args.--v: "--v" is no flag; write it without dashes in '
    "front, such as max-model-len",
    FILE + "datasystem: {args: {v: [1]}}\n": "4: datasystem.args.v: it takes one value; write text, a number, "
    "true or false",
    FILE + "env: {A-B: 1}\n": '4: env.A-B: "A-B" is no name of a variable; write letters, digits and _',
    FILE + "env:\n  A: 1\n  ETCD_NAME: x\n": "6: env.ETCD_NAME: ETCD_NAME is set by yrnode itself; remove it, "
    "and use the keys of this file",
    FILE
    + "env: {YRNODE_INSTANCE: x}\n": "4: env.YRNODE_INSTANCE: YRNODE_INSTANCE is set by yrnode itself; remove it, "
    "and use the keys of this file",
    FILE + "env: {A: }\n": '4: env.A: it has no value; write one, or "" for an empty one',
    FILE + "env: {A: {b: c}}\n": "4: env.A: it takes one value; write text, a number, true or false",
    FILE + "bin: {vllm: []}\n": "4: bin.vllm: it is no command; write a name, a path, or a list of words such as "
    "[python, -m, x]",
    FILE + "state_dir: ~/state\n": '4: state_dir: "~/state" begins with ~, which differs per user; '
    "write an absolute path",
    FILE
    + "api: {listen: 8470}\n": "4: api.listen: 8470 is a number; write text, in quotes if it looks like a number",
    FILE
    + 'api: {listen: ":8470"}\n': '4: api.listen: ":8470" is no address and port; write one such as 127.0.0.1:8470',
    FILE + "checks: {canary: {}}\n": '4: checks.canary: "canary" does not fit; write a kind of component '
    "(etcd, worker, rank, router, node) and a check, such as rank.canary",
    FILE + "checks: {rank.canary: {mode: look}}\n": '4: checks.rank.canary.mode: "look" is not known; '
    "write one of act, observe",
    FILE + "checks: {rank.canary: {failures: 0}}\n": "4: checks.rank.canary.failures: 0 is out of range; "
    "write 1 or more",
    group("ranks: {n0: -1}"): "6: groups.serve.ranks.n0: -1 is out of range; write 0 or more",
    group("ranks: [n0]"): "6: groups.serve.ranks: this value is a list; write a mapping, key: value",
    group("ranks: {n0: 1}\n    tensor_paralel: 8"): "7: groups.serve.tensor_paralel: this key is unknown; "
    "did you mean tensor_parallel?",
    group("ranks: {n0: 1}\n    tensor_parallel: 0"): "7: groups.serve.tensor_parallel: 0 is out of range; "
    "write 1 or more",
    group("ranks: {n0: 1}\n    mode: internal"): '7: groups.serve.mode: "internal" is not known; '
    "write one of external, headless",
    group("ranks: {n0: 1}\n    args: {max-len: }"): "7: groups.serve.args.max-len: it has no value; "
    "write true for a flag without one",
    group("ranks: {n0: 1}\n    args: {max-len: 1, max_len: 2}"): "7: groups.serve.args: max_len is given twice, "
    "with - and with _; keep one",
    group("ranks: {n0: 1}\n    nodes:\n      n0: {arg: {}}"): "8: groups.serve.nodes.n0.arg: this key is unknown; "
    "did you mean args?",
    group("ranks: {n0: 1}\n    kv_connector: {mooncak: {}}"): "7: groups.serve.kv_connector.mooncak: "
    "this key is unknown; did you mean mooncake?",
    f"{HEAD}groups:\n  serve: {{ranks: {{n0: 1}}}}\n": "4: groups.serve.model: it is missing; write model: …",
    f"{HEAD}groups:\n  serve: {{ranks: {{n0: 1}}, model: ''}}\n": "4: groups.serve.model: it is no model; "
    "write its directory or its name",
    FILE + "router: {node: n0, kind: command, argv: [x], health: healthz}\n": '4: router.health: "healthz" does not '
    "fit; write a path such as /health",
}

EXPOSED = "the worker takes a password on its command line alone, where everybody on the host reads it"
CERT_OF_A_USER = "etcd_cert and etcd_key in datasystem.args, of a certificate whose CN is a user of etcd"
CANNOT_WORK = {
    "cluster: a\nnodes:\n  n0: {address: 10.0.0.1}\n  n1: {address: 10.0.0.1}\n" + GROUP: "4: nodes.n1.address: "
    "10.0.0.1 is n0's address; give each node its own",
    "cluster: a\nnodes:\n  n0: {address: 10.0.0.1}\n  n1: {address: 127.0.0.1}\n" + GROUP: "4: nodes.n1.address: "
    "other nodes cannot reach 127.0.0.1; write the address of its network interface",
    FILE
    + "env: {VLLM_PORT: 'tcp://10.0.0.2:8000'}\n": '4: env.VLLM_PORT: "tcp://10.0.0.2:8000" is no port, and vLLM '
    "refuses it; write a number or remove it",
    "cluster: a\nnodes:\n  n0: {address: 10.0.0.1, env: {VLLM_PORT: x}}\n"
    + GROUP: '3: nodes.n0.env.VLLM_PORT: "x" is no port, and vLLM refuses it; write a number or remove it',
    group("ranks: {n0: 1}\n    env: {VLLM_PORT: -1}"): '7: groups.serve.env.VLLM_PORT: "-1" is no port, and vLLM '
    "refuses it; write a number or remove it",
    group("ranks: {n0: 1}\n    nodes: {n0: {env: {VLLM_PORT: ''}}}"): '7: groups.serve.nodes.n0.env.VLLM_PORT: "" is '
    "no port, and vLLM refuses it; write a number or remove it",
    FILE + "etcd: {nodes: [n0, n1]}\n": "4: etcd.nodes: 2 nodes are no good majority; name 1, 3 or 5",
    FILE + "etcd: {nodes: [n5]}\n": "4: etcd.nodes[0]: there is no node n5; known: n0, n1",
    FILE + "etcd: {nodes: [n0, n0, n1]}\n": "4: etcd.nodes: n0 is named twice; name each node once",
    FILE
    + "etcd: {nodes: [n0], external: ['http://h:1']}\n": "4: etcd.external: etcd is either on nodes or external; "
    "remove one of the two",
    FILE + "etcd: {tls: {ca: a, cert: b}}\n": "4: etcd.tls: cert and key belong together; write both",
    FILE
    + "etcd: {tls: {ca: a}}\n": "4: etcd.tls: etcd on our nodes serves TLS with a certificate; write cert and key",
    FILE + "etcd: {external: ['http://h:1'], tls: {ca: a}}\n": "4: etcd.external[0]: http://h:1 is plain, "
    "and tls is set; write https:// or remove tls",
    FILE + "etcd:\n  args: {data-dir: /x}\n": "5: etcd.args.data-dir: it has its own key; write etcd.data_dir",
    FILE
    + "etcd:\n  args: {force-new-cluster: true}\n": "5: etcd.args.force-new-cluster: yrnode needs it as it sets it; "
    "remove it",
    FILE + "etcd:\n  args: {quota-backend-bytes: 8GB}\n": "5: etcd.args.quota-backend-bytes: 8GB is no quota; "
    "write a number of bytes above 0",
    FILE
    + "etcd: {external: ['http://h:1'], args: {a: 1}}\n": "4: etcd.args: yrnode does not start an external etcd; "
    "give it its flags where it is started",
    FILE + "datasystem: {node_timeout: 60s}\n": "4: datasystem.node_dead_timeout: a worker is dead only after it was "
    "lost; write a longer duration than node_timeout",
    FILE + "datasystem: {node_timeout: 1500ms}\n": "4: datasystem.node_timeout: the worker takes whole seconds; "
    "write 1s or more",
    FILE + "datasystem: {shared_memory: 100KB}\n": "4: datasystem.shared_memory: the worker takes whole MB; "
    "write one such as 512MB",
    FILE + "datasystem: {remote_h2d: [0]}\n": "4: datasystem.remote_h2d: it needs huge pages; write huge_pages: true",
    FILE
    + "datasystem: {huge_pages: true, remote_h2d: [1, 1]}\n": "4: datasystem.remote_h2d: a device is named twice; "
    "name each once",
    FILE + "datasystem: {cluster_name: yrnode}\n": "4: datasystem.cluster_name: yrnode's own keys begin with it; "
    "write another name",
    FILE + "datasystem:\n  args: {node_timeout_s: 3}\n": "5: datasystem.args.node_timeout_s: it has its own key; "
    "write datasystem.node_timeout",
    FILE
    + "datasystem:\n  args: {etcd_address: x}\n": "5: datasystem.args.etcd_address: it follows from etcd; remove it",
    FILE + "datasystem:\n  args: {etcd_ca: x}\n": "5: datasystem.args.etcd_ca: it follows from etcd.tls; remove it",
    FILE
    + "datasystem:\n  args: {etcd_password: x}\n": f"5: datasystem.args.etcd_password: {EXPOSED}; remove it, and "
    f"write {CERT_OF_A_USER}",
    FILE
    + "etcd: {auth: {user: a, password_file: p}}\n": f"4: etcd.auth: {EXPOSED}; write etcd.tls, and {CERT_OF_A_USER}",
    FILE + "etcd: {tls: {ca: a, cert: b, key: c}, auth: {user: a, password_file: p}}\n": f"4: etcd.auth: {EXPOSED}; "
    f"write {CERT_OF_A_USER}",
    FILE + "datasystem:\n  args: {etcd_cert: x}\n": "5: datasystem.args.etcd_cert: etcd_cert and etcd_key belong "
    "together; write both",
    FILE + "datasystem:\n  args: {etcd_cert: x, etcd_key: y}\n": "5: datasystem.args.etcd_cert: it is for etcd with "
    "TLS; write etcd.tls too, or remove it",
    FILE + "etcd: {external: ['https://h:1'], tls: {ca: a}}\n": "4: etcd.tls: the worker speaks TLS only with a "
    "certificate of its own; write cert and key",
    FILE + "etcd: {external: ['https://h:1']}\n": "4: etcd.external: the worker trusts no CA but that "
    "of the file; write etcd.tls",
    FILE + "etcd: {external: ['https://h:1', 'https://i:1'], tls: {ca: a, cert: b, key: c}}\n": "4: etcd.tls: the "
    "worker looks for one name in the certificates of all members; write one that all of them have as "
    "etcd_target_name_override in datasystem.args",
    FILE + "datasystem:\n  args: {etcd_target_name_override: x}\n": "5: datasystem.args.etcd_target_name_override: "
    "it is for etcd with TLS; write etcd.tls too, or remove it",
    f"{HEAD}groups:\n  cache: {{ranks: {{n0: 1}}, model: m}}\n": "4: groups.cache: cache has a meaning of its own; "
    "give the group another name",
    f"{HEAD}groups:\n  all: {{ranks: {{n0: 1}}, model: m}}\n": "4: groups.all: all has a meaning of its own; "
    "give the group another name",
    f"{HEAD}groups:\n  n1: {{ranks: {{n0: 1}}, model: m}}\n": "4: groups.n1: a node has the name n1 too; "
    "give one of the two another name",
    "cluster: a\nnodes: {all: {address: 10.0.0.1}}\n"
    + GROUP.replace("n0", "all"): "2: nodes.all: all has a meaning of its own; give the node another name",
    "cluster: a\nnodes: {cache: {address: 10.0.0.1}}\n"
    + GROUP.replace("n0", "cache"): "2: nodes.cache: cache has a meaning of its own; give the node another name",
    group("ranks: {n9: 1}"): "6: groups.serve.ranks.n9: there is no node n9; known: n0, n1",
    group(
        "ranks: {n0: 0}"
    ): "6: groups.serve.ranks: the group has no rank; write a node and its number of ranks, n0: 1",
    group("ranks: {n0: 1}\n    devices: {n1: [0]}"): "7: groups.serve.devices.n1: n1 has no rank of this group; "
    "add it to ranks or remove it",
    group("ranks: {n0: 1}\n    nodes: {n1: {}}"): "7: groups.serve.nodes.n1: n1 has no rank of this group; "
    "add it to ranks or remove it",
    group(
        "ranks: {n0: 2}\n    devices: {n0: [0]}"
    ): "7: groups.serve.devices.n0: it names 1, and groups.serve.ranks.n0 times 1 each "
    "(tensor_parallel) is 2; write as many",
    group("ranks: {n0: 2}\n    devices: {n0: [3, 3]}"): "7: groups.serve.devices.n0: a device is named twice; "
    "name each once",
    group("ranks: {n0: 1}\n    restart_with: [serv]"): "7: groups.serve.restart_with[0]: there is no group serv; "
    "did you mean serve?",
    group("ranks: {n0: 1}\n    restart_with: [serve]"): "7: groups.serve.restart_with[0]: the group names itself; "
    "remove it",
    group("ranks: {n0: 1}\n    peer: decode"): "7: groups.serve.peer: there is no group decode; known: serve",
    group("ranks: {n0: 1}\n    peer: serve"): "7: groups.serve.peer: the group names itself; "
    "name the other group of the pair",
    group(
        "ranks: {n0: 1}\n    kv_connector: {mooncake: {}}"
    ): "7: groups.serve.kv_connector.mooncake: Mooncake needs the other group's sizes; write peer: …",
    group("ranks: {n0: 1}\n    env: {A: 1}\n    unset: [A]"): "8: groups.serve.unset[0]: A is set in this group's "
    "env too; keep one of the two",
    group("ranks: {n0: 1}\n    nodes: {n0: {env: {A: 1}}}\n    unset: [A]"): "8: groups.serve.unset[0]: A is set in "
    "this group's env too; keep one of the two",
    group("ranks: {n0: 1}\n    start_timeout: 0s"): "7: groups.serve.start_timeout: it is 0; "
    "write a duration such as 30m",
    group("ranks: {n0: 1}\n    args: {port: 1}"): "7: groups.serve.args.port: it has its own key; "
    "write port of the group",
    group("ranks: {n0: 1}\n    args: {tensor-parallel-size: 2}"): "7: groups.serve.args.tensor-parallel-size: "
    "it has its own key; write tensor_parallel of the group",
    group("ranks: {n0: 1}\n    args: {data_parallel_rank: 0}"): "7: groups.serve.args.data-parallel-rank: "
    "it has its own key; write ranks of the group",
    group("ranks: {n0: 1}\n    args: {kv-transfer-config: {}}\n    kv_connector: {ascend_store: {}}"): "7: "
    "groups.serve.args.kv-transfer-config: kv_connector writes it; keep one of the two",
    group(
        "ranks: {n0: 1}\n    args: {kv-transfer-config.kv_role: kv_both}\n    kv_connector: {ascend_store: {}}"
    ): "7: groups.serve.args.kv-transfer-config.kv_role: kv_connector writes it; keep one of the two",
    **{
        group(
            f"ranks: {{n0: 1, n1: 1}}\n    mode: headless\n    args: {{{flag}: true}}"
        ): f"8: groups.serve.args.{flag}: it needs a server for each rank; remove it, or write mode: external"
        for flag in ("data-parallel-external-lb", "data-parallel-hybrid-lb", "enable-fault-tolerance")
    },
    group("ranks: {n0: 1, n1: 1}\n    mode: headless\n    args: {data-parallel-backend: ray}"): "8: "
    "groups.serve.args.data-parallel-backend: ray starts the other ranks itself; remove it",
    group("ranks: {n0: 1, n1: 1}\n    mode: headless\n    nodes: {n1: {args: {api-server-count: 2}}}"): "8: "
    "groups.serve.nodes.n1.args.api-server-count: the server on n1 is headless; remove it",
    group("ranks: {n0: 3}\n    port: 65534"): "7: groups.serve.port: it reaches port 65536 on n0; write a lower port",
    group(
        "ranks: {n0: 1}\n    port: 2379"
    ): "7: groups.serve.port: port 2379 of n0 is used by etcd's client port (etcd.client_port) too; write "
    "another port",
    group(
        "ranks: {n0: 2}\n    rpc_port: 6601"
    ): "7: groups.serve.rpc_port: port 6601 of n0 is used by group serve (groups.serve.port) too; write another port",
    FILE + "datasystem: {port: 2380}\n": "4: datasystem.port: port 2380 of n0 is used by etcd's peer port "
    "(etcd.peer_port) too; "
    "write another port",
    FILE + 'api: {listen: "0.0.0.0:6600"}\n': "4: api.listen: port 6600 of n0 is used by group serve "
    "(groups.serve.port) too; "
    "write another port",
    FILE + "router: {node: n0, kind: vllm-router, port: 6600}\n": "4: router.port: port 6600 of n0 is used by "
    "group serve (groups.serve.port) too; write another port",
    HEAD + "groups:\n  a: {ranks: {n0: 2}, model: m, devices: {n0: [0, 1]}}\n"
    "  b: {ranks: {n0: 1}, model: m, port: 6601, devices: {n0: [2]}}\n": "5: groups.b.port: port 6601 of n0 is used "
    "by group a (groups.a.port) too; write another port",
    HEAD + "groups:\n  a: {ranks: {n0: 2}, model: m}\n  b: {ranks: {n0: 1}, model: m, port: 7000}\n": "5: "
    "groups.b.devices.n0: device 0 of n0 is used by group a (groups.a.devices.n0) too; write devices for both groups",
    HEAD
    + PAIR.replace("n1: 2", "n0: 2, n1: 1").replace("{mooncake: {}}}", "{mooncake: {kv_port: 31000}}}", 1)
    + "    # x\n": "5: groups.d.port: port 6600 of n0 is used by group p (groups.p.port) too; write another port",
    HEAD + PAIR.replace("role: producer", "role: consumer"): "4: groups.p.peer: one of p and d prefills and one "
    "decodes; write role: producer and role: consumer",
    HEAD + PAIR.replace("mooncake: {}", "mooncake: {extra: {kv_role: kv_both}}", 1): "4: "
    "groups.p.kv_connector.mooncake.extra.kv_role: it follows from groups.p.role; remove it, and write that",
    HEAD + PAIR.replace("mooncake: {}", "mooncake: {extra: {prefill: {dp_size: 9}}}", 1): "4: "
    "groups.p.kv_connector.mooncake.extra.prefill: it follows from ranks and tensor_parallel of the two groups; "
    "remove it",
    HEAD
    + PAIR.replace("mooncake: {}", "ascend_store: {}", 1): "5: groups.d.kv_connector.mooncake: groups.p.kv_connector "
    "has none, and one hands over to the other; write it there too",
    HEAD + PAIR.replace("mooncake: {}", "mooncake: {engine_id: 0}"): "5: groups.d.kv_connector.mooncake.engine_id: "
    '"0" is groups.p.kv_connector.mooncake.engine_id too, and decode ranks refuse that; remove one of the two',
    group("ranks: {n0: 2}\n    kv_connector: {ascend_store: {extra: {lookup_rpc_port: 0}}}"): "7: "
    "groups.serve.kv_connector.ascend_store.extra.lookup_rpc_port: all ranks on n0 would have the same; remove it: "
    "each then gets its own number",
    group("ranks: {n0: 1}\n    args: {kv-transfer-config: x}"): "7: groups.serve.args.kv-transfer-config: it is no "
    "JSON; write a mapping, {kv_connector: …}",
    group("ranks: {n0: 1}\n    args: {kv-transfer-config: '[1]'}"): "7: groups.serve.args.kv-transfer-config: it is "
    "no mapping; write one, {kv_connector: …}",
    group(f"ranks: {{n0: 1}}\n    args: {{kv-transfer-config: {ROLES}}}"): "7: groups.serve.args.kv-transfer-config: "
    "connectors[1].kv_role is kv_both, and kv-transfer-config.kv_role kv_producer; write one role in all places",
    group('ranks: {n0: 1}\n    role: producer\n    args: {kv-transfer-config: \'{"kv_role": "kv_both"}\'}'): "8: "
    "groups.serve.args.kv-transfer-config: kv-transfer-config.kv_role is kv_both, and groups.serve.role kv_producer; "
    "write one role in all places",
    HEAD + PAIR + "router: {node: n0, kind: vllm-router, port: 8000, prefill: d, decode: p}\n": "6: router.prefill: "
    "groups.d.role is consumer; name the other group, or correct its role",
    HEAD
    + SHARED: "5: groups.d.kv_connector.mooncake.kv_port: 30000 is groups.p.kv_connector.mooncake.kv_port too, and "
    "both groups are on n0; write another port for each",
    # each device has a port: the second of p has that of d's first
    HEAD
    + SHARED.replace("{mooncake: {}}}", "{mooncake: {kv_port: 30001}}}")
    .replace("30001", "30000", 1)
    .replace("ranks: {n0: 1}", "ranks: {n0: 1}, tensor_parallel: 2", 1)
    .replace("[1]", "[2]"): "5: groups.d.kv_connector.mooncake.kv_port: port 30001 of n0 is used by Mooncake of p "
    "(groups.p.kv_connector.mooncake.kv_port) too; write another port",
    FILE
    + "env: {HCCL_IF_BASE_PORT: 80}\n": '4: env.HCCL_IF_BASE_PORT: "80" is no port that HCCL takes; write one from '
    "1024 to 65520",
    HEAD
    + HCCL.replace("port: 7000", "port: 7000, env: {HCCL_IF_BASE_PORT: 61010}"): "5: groups.b.env.HCCL_IF_BASE_PORT: "
    "port 61010 of n0 is used by HCCL of a (groups.a) too; write another port",
    FILE + "router: {node: n7, kind: vllm-router}\n": "4: router.node: there is no node n7; known: n0, n1",
    FILE + "router: {node: n0, kind: vllm-router, group: x}\n": "4: router.group: there is no group x; known: serve",
    FILE + "router: {node: n0}\n": "4: router: ascend-proxy needs script; write the path of vllm-ascend's proxy",
    FILE + "router: {node: n0, kind: command}\n": "4: router: kind: command needs argv; write the command's words",
    FILE
    + "router: {node: n0, kind: vllm-router, argv: [x]}\n": "4: router.argv: only kind: command has it; remove it",
    FILE + "router: {node: n0, kind: vllm-router, script: x}\n": "4: router.script: only kind: ascend-proxy has it; "
    "remove it",
    HEAD + PAIR + "router: {node: n0, kind: vllm-router}\n": "6: router: it is open which groups are behind it; "
    "write prefill and decode, or group",
    HEAD + PAIR + "router: {node: n0, kind: vllm-router, prefill: p}\n": "6: router: prefill and decode belong "
    "together; write both, or group",
    FILE
    + "checks: {etcd.read: {stall_timeout: 3s}}\n": "4: checks.etcd.read.stall_timeout: only a check of ranks has "
    "it; remove it",
    FILE + "checks: {etcd.read: {period: 0s}}\n": "4: checks.etcd.read.period: it is 0; write a duration above it",
    FILE + f"run_dir: /{'x' * 100}\n": f"4: run_dir: /{'x' * 100} is too long for a socket in it; "
    "write a path of at most 95 bytes",
}


@pytest.mark.parametrize(("text", "line"), WRONG_VALUES.items(), ids=[line[:50] for line in WRONG_VALUES.values()])
def test_a_wrong_value(text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults(text, tmp_path, monkeypatch)[0] == f"c.yaml:{line}"


@pytest.mark.parametrize(("text", "line"), CANNOT_WORK.items(), ids=[line[:50] for line in CANNOT_WORK.values()])
def test_values_that_cannot_work_together(
    text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"c.yaml:{line}" in faults(text, tmp_path, monkeypatch)


def test_all_faults_are_told_in_the_order_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = group("ranks: {n0: one}\n    mode: x") + "etcd: {client_port: 0}\ndatasystem: {node_timeout: 3}\n"
    lines = faults(text, tmp_path, monkeypatch)
    assert [line.split(":")[1] for line in lines] == ["6", "7", "8", "9"]
    assert not any("\n" in line for line in lines)


def test_a_fault_in_a_flag_written_with_underscores_keeps_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = group("ranks: {n0: 1}\n    args:\n      seed: 1\n      tensor_parallel_size: 2")
    assert [line.split(":")[1] for line in faults(text, tmp_path, monkeypatch)] == ["9"]
