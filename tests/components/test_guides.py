"""From one short file come the commands and environments that the deployment guides type by hand, on every node.

What is different on purpose stands in DIFFERENCES with its reason: an unlisted difference fails, and so does a listed
one that is gone.
"""

from __future__ import annotations

import fnmatch
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.guides import DEPLOYMENTS, JSON_FLAGS, SHELL, leaves
from yrnode.cli.main import main
from yrnode.components import node as components
from yrnode.config.cluster import Bin
from yrnode.config.load import load
from yrnode.model.spec import NIC, ComponentSpec

SHIPPED = Path(__file__).resolve().parents[2] / "config"
A3, A2, PD, RH2D = DEPLOYMENTS
ALL, TWO, EIGHT = tuple(DEPLOYMENTS), (A3, A2), (PD, RH2D)
# Programs that are not here, so that none is looked up.
BIN = Bin(vllm=("/usr/bin/vllm",), dscli=("/usr/bin/dscli",), etcd=("/usr/bin/etcd",), python=("/usr/bin/python",))


class Difference(NamedTuple):
    """`process`: patterns of `node:component`, with ! for others than these. `guide` and `ours`: values, None where
    it is not there; `{ip}` and such stand for the process's own."""

    deployments: tuple[str, ...]
    process: str
    item: str
    guide: Any
    ours: Any
    why: str


RANKS, ETCD, WORKERS, ROUTER, HEADLESS = "*:rank/*", "*:etcd", "*:worker", "*:router", "n1:rank/serve/1"
BY_CHECKS = "a component is started by itself, its output goes to its log, and checks prove it"
BOUNDED = "without its store it writes 13 MB a second"
NO_HTTP = "a headless server listens on no HTTP port"
ONE_ADDRESS = "the store has no password: it listens on the address that the others use alone"
CALLERS = "nothing of the caller's shell reaches a component"
WRITTEN = "each rank's devices are written out, so that none is in two"
PIPE = "a pipe hides the exit code, and two ranks of a node would share the file"
SDK_LOGS = "~ in quotes is a directory of that name, and two ranks of a node would share it"
OWN_SDK_LOGS = "two ranks of a node would share ~/.datasystem"
COUNTING = "how many requests a rank holds is half of the proof that it hangs"
GUESSED = "a host with several interfaces would else guess"
DIRECTORY = "without -d its data would be wherever it was started"
LOOKUP = "--kv-transfer-config/kv_connector_extra_config/connectors/1/kv_connector_extra_config/lookup_rpc_port"
DIFFERENCES = [
    Difference(ALL, "*", "$no_proxy", None, "{direct}", "the cluster's own traffic never takes a proxy"),
    Difference(ALL, "*", "$NO_PROXY", None, "{direct}", "the cluster's own traffic never takes a proxy"),
    Difference(ALL, f"* !{ROUTER}", "$http_proxy", "http://proxy:3128", None, CALLERS),
    Difference(ALL, f"* !{ROUTER}", "$https_proxy", "http://proxy:3128", None, CALLERS),
    Difference(ALL, f"{ETCD} {WORKERS}", "$LD_LIBRARY_PATH", "/image/lib", None, CALLERS),
    Difference(ALL, f"{RANKS} {ROUTER}", "$SPT_NOENV", None, "1", "a title would erase the mark of its owner"),
    # etcd
    Difference(ALL, ETCD, "--name", "etcd-single", "{node}", "a member has its node's name: three need three"),
    Difference(ALL, ETCD, "--initial-cluster", "etcd-single={peer}", "{node}={peer}", "it follows from the name"),
    Difference(ALL, ETCD, "--data-dir", "/tmp/etcd-data", "/var/lib/yrnode/etcd", "/tmp is cleared at a boot"),
    Difference(ALL, ETCD, "--listen-client-urls", "http://0.0.0.0:2379", "http://{ip}:2379", ONE_ADDRESS),
    Difference(ALL, ETCD, "--listen-peer-urls", "http://0.0.0.0:2380", "{peer}", ONE_ADDRESS),
    Difference(
        ALL, ETCD, "--initial-cluster-token", None, "{cluster}", "two clusters never take each other's members"
    ),
    Difference(ALL, ETCD, "--initial-cluster-state", None, "new", "etcd's default; a replaced member has another"),
    Difference(ALL, ETCD, "--auto-compaction-mode", None, "periodic", "the store would grow without end"),
    Difference(ALL, ETCD, "--auto-compaction-retention", None, "1h", "the store would grow without end"),
    Difference(ALL, ETCD, "--quota-backend-bytes", None, "8589934592", "at etcd's own 2 GiB it takes no more writes"),
    Difference(ALL, ETCD, "--logger", None, "zap", "its log says why it died, in JSON"),
    Difference(ALL, ETCD, "shell: > /tmp/etcd.log 2>&1 &", True, None, BY_CHECKS),
    Difference(ALL, ETCD, "shell: sleep 3", True, None, BY_CHECKS),
    Difference(ALL, ETCD, "shell: etcdctl put key value", True, None, BY_CHECKS),
    Difference(ALL, ETCD, "shell: etcdctl get key", True, None, BY_CHECKS),
    # the worker
    Difference(ALL, WORKERS, "-d", None, "/var/lib/yrnode/worker", DIRECTORY),
    Difference((A3, A2, PD), WORKERS, "-t", None, "90", "dscli's own default"),
    Difference(
        ALL, WORKERS, "--liveness_check_path", "/workspace/liveness", "/var/lib/yrnode/worker/liveness", DIRECTORY
    ),
    Difference(ALL, WORKERS, "--max_log_size", None, "100", BOUNDED),
    Difference(ALL, WORKERS, "--max_log_file_num", None, "5", BOUNDED),
    # vllm
    Difference(ALL, RANKS, "--shutdown-timeout", None, "10", "with none a stop kills engines that still hold NPUs"),
    Difference(ALL, f"{RANKS} !{HEADLESS}", "--enable-server-load-tracking", None, True, COUNTING),
    Difference((A3,), RANKS, "--data-parallel-size", "1", None, "vLLM's own default: there is no group"),
    Difference((A2,), "n0:rank/*", "--api-server-count", None, "1", "several servers count their requests apart"),
    Difference((A2,), HEADLESS, "--host", "0.0.0.0", None, NO_HTTP),
    Difference((A2,), HEADLESS, "--port", "1026", None, NO_HTTP),
    Difference(
        EIGHT, "p[123]:rank/*", LOOKUP, "0", "{rank}", "one rule, a rank's own number, as for the decode ranks"
    ),
    Difference(
        EIGHT,
        "p*:rank/*",
        "--kv-transfer-config/engine_id",
        "0",
        None,
        "prefill restarts alone here: with the id of before, decode would go on using the addresses of before",
    ),
    Difference((A3,), RANKS, "$HCCL_IF_IP", None, "{ip}", GUESSED),
    Difference((A3,), RANKS, "$GLOO_SOCKET_IFNAME", None, NIC, GUESSED),
    Difference((A3,), RANKS, "$TP_SOCKET_IFNAME", None, NIC, GUESSED),
    Difference((A3,), RANKS, "$HCCL_SOCKET_IFNAME", None, NIC, GUESSED),
    Difference((A3,), RANKS, "$ASCEND_RT_VISIBLE_DEVICES", None, ",".join(map(str, range(16))), WRITTEN),
    Difference((A2,), RANKS, "$ASCEND_RT_VISIBLE_DEVICES", None, ",".join(map(str, range(8))), WRITTEN),
    Difference((PD,), RANKS, "$DATASYSTEM_CLIENT_LOG_DIR", "~/", "/var/log/yrnode/{dashed}-datasystem", SDK_LOGS),
    Difference(
        (A3, A2, RH2D), RANKS, "$DATASYSTEM_CLIENT_LOG_DIR", None, "/var/log/yrnode/{dashed}-datasystem", OWN_SDK_LOGS
    ),
    Difference(
        ALL,
        RANKS,
        "$YR_CONFIG_PATH",
        None,
        "/var/lib/yrnode/{dashed}/datasystem.json",
        "later releases of vllm-ascend read this file instead of DS_WORKER_ADDR",
    ),
    Difference(ALL, RANKS, "$VLLM_RPC_BASE_PATH", None, "/run/yrnode/{dashed}", "its sockets go away with the rank"),
    Difference(TWO, "n0:rank/*", "shell: 2>&1 | tee ./glm-5_yuanrong.log", True, None, PIPE),
    Difference((A2,), HEADLESS, "shell: 2>&1 | tee -a ./glm-5_yuanrong.log", True, None, PIPE),
    Difference(EIGHT, RANKS, "shell: 2>&1 | tee glm.log", True, None, PIPE),
    Difference(EIGHT, RANKS, "shell: rm -rf ~/ascend", True, None, "a node's second rank removes the first's logs"),
    # the proxy
    Difference(EIGHT, ROUTER, "--waiting-retry-interval", None, "1", "it takes members within a second, not ten"),
    Difference(EIGHT, ROUTER, "shell: > proxy.log &", True, None, BY_CHECKS),
]


def hits(patterns: str, process: str) -> bool:
    words = patterns.split()
    shut = [word[1:] for word in words if word.startswith("!")]
    return any(fnmatch.fnmatch(process, word) for word in words if word[0] != "!") and not any(
        fnmatch.fnmatch(process, word) for word in shut
    )


@functools.cache
def ours(deployment: str) -> dict[str, tuple[ComponentSpec, dict[str, str]]]:
    """By `node:component`: the spec, and what may stand in a difference."""
    cluster = load(SHIPPED / f"{deployment}.yaml").model_copy(update={"bin": BIN})
    hosts = ["127.0.0.1", "localhost", "::1", *(node.address for node in cluster.nodes.values())]
    found = {}
    for name in cluster.nodes:
        host = components.host_of(cluster, name, SHELL)
        for spec in components.specs(host):
            facts = {
                "node": name,
                "ip": host.address,
                "peer": f"http://{host.address}:2380",
                "cluster": cluster.cluster,
                "dashed": spec.name.replace("/", "-"),
                "rank": str(spec.rank),
                "direct": ",".join(hosts),
            }
            found[f"{name}:{spec.name}"] = (spec, facts)
    return found


def items(spec: ComponentSpec) -> dict[str, Any]:
    """As `Typed.items` has them."""
    words: list[str] = []
    flags: dict[str, list[str]] = {}
    flag = ""
    for word in spec.argv:
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            assert flag not in flags, f"{flag} is given twice"
            flags[flag] = [value] if equals else []
        else:
            (flags[flag] if flag else words).append(word.replace(f"{SHIPPED}/", ""))
    found: dict[str, Any] = {"words": (Path(words[0]).name, *words[1:])}
    for name, values in flags.items():
        if name.removeprefix("--") in JSON_FLAGS:
            found |= dict(leaves(name, json.loads(*values)))
        else:
            found[name] = values[0] if len(values) == 1 else values or True
    found |= {f"${name}": value for name, value in spec.env.items()}
    return {**found, **{f"unset {name}": True for name in spec.unset}}


def complaints(guide: Mapping[str, Any], mine: Mapping[str, Any], listed: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """What differs and is not listed so, and what is listed and does not differ so."""
    found = {item: (guide.get(item), mine.get(item)) for item in guide.keys() | mine.keys()}
    differ = {item: pair for item, pair in found.items() if pair[0] != pair[1]}
    return [
        f"{item}: guide {differ.get(item)}, listed {listed.get(item)}"
        for item in sorted(differ.keys() | listed.keys())
        if differ.get(item) != listed.get(item)
    ]


def listed(deployment: str, process: str, facts: Mapping[str, str]) -> dict[str, tuple[Any, Any]]:
    def filled(value: Any) -> Any:
        return value.format(**facts) if isinstance(value, str) else value

    rows = [d for d in DIFFERENCES if deployment in d.deployments and hits(d.process, process)]
    found = {d.item: (filled(d.guide), filled(d.ours)) for d in rows}
    assert len(found) == len(rows), "an item is listed twice"
    return found


PROCESSES = [(name, process) for name, typed in DEPLOYMENTS.items() for process in typed()]


@pytest.mark.parametrize(("deployment", "process"), PROCESSES, ids=[f"{d}-{p}" for d, p in PROCESSES])
def test_a_process_is_started_as_the_guide_starts_it(deployment: str, process: str) -> None:
    guide = DEPLOYMENTS[deployment]()[process].items()
    spec, facts = ours(deployment)[process]
    assert complaints(guide, items(spec), listed(deployment, process, facts)) == []


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_node_runs_what_the_guide_has_it_run(deployment: str) -> None:
    assert ours(deployment).keys() == DEPLOYMENTS[deployment]().keys()


def test_every_listed_difference_is_of_some_process_and_has_a_reason() -> None:
    for difference in DIFFERENCES:
        assert difference.why
        for deployment in difference.deployments:
            assert any(d == deployment and hits(difference.process, p) for d, p in PROCESSES), difference


def test_both_an_unlisted_difference_and_one_that_is_gone_are_told() -> None:
    process = "d1:rank/decode/3"
    guide = DEPLOYMENTS[PD]()[process].items()
    spec, facts = ours(PD)[process]
    mine, known = items(spec), listed(PD, process, facts)
    assert complaints(guide, mine, known) == []
    for item in (*guide, *mine):
        # each thing for itself: gone, or with another value
        for changed in ({k: v for k, v in mine.items() if k != item}, {**mine, item: "other"}):
            if item in mine:
                assert [line.split(": ")[0] for line in complaints(guide, changed, known)] == [item.split(": ")[0]]
    for item in known:
        assert len(complaints(guide, {**mine, item: guide.get(item)}, known)) == 1
    assert len(complaints(guide, {**mine, "--surprise": True}, known)) == 1


@pytest.mark.parametrize("deployment", [PD, RH2D])
def test_libraries_are_looked_for_in_the_guides_order(deployment: str) -> None:
    """The guide puts /usr/local/lib behind what there is, and then Mooncake's before it."""
    mooncake = "/usr/local/Ascend/ascend-toolkit/latest/python/site-packages/mooncake"
    ranks = [spec for spec, _ in ours(deployment).values() if spec.kind == "rank"]
    assert {spec.env["LD_LIBRARY_PATH"] for spec in ranks} == {f"{mooncake}:/image/lib:/usr/local/lib"}


def test_the_connectors_configuration_as_a_whole() -> None:
    """The JSON of the guides, not only its leaves."""
    pd = DEPLOYMENTS[PD]()
    decode = {p: typed for p, typed in pd.items() if "kv-transfer-config" in typed.flags and ":rank/decode" in p}
    assert decode
    for process, typed in decode.items():
        argv = ours(PD)[process][0].argv
        mine = json.loads(argv[argv.index("--kv-transfer-config") + 1])
        assert mine == json.loads(typed.flags["kv-transfer-config"]), process


def test_remote_h2d_is_told_in_the_file_too() -> None:
    for deployment in DEPLOYMENTS:
        assert any(spec.files for spec, _ in ours(deployment).values())
        for process, (spec, facts) in ours(deployment).items():
            for text in spec.files.values():
                more = {"enable_remote_h2d": True} if deployment == RH2D else {}
                assert json.loads(text) == {"worker_addr": f"{facts['ip']}:18481", **more}, process


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.yaml")), ids=lambda file: file.name)
def test_every_node_of_every_shipped_file_is_rendered_anywhere(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert main(["render", "--all", "--config", str(file), "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    cluster = load(file)
    rendered = json.loads(out)
    assert [node["node"] for node in rendered] == list(cluster.nodes)
    for node in rendered:
        names = [c["name"] for c in node["components"]]
        assert "worker" in names
        assert sum(name.startswith("rank/") for name in names) == sum(
            1 if g.mode == "headless" else g.ranks.get(node["node"], 0) for g in cluster.groups.values()
        )
    assert main(["render", "--all", "--config", str(file)]) == 0
    text = capsys.readouterr().out
    assert all(f"# {node}: worker (cache" in text for node in cluster.nodes)
