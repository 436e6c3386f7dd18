"""The image recipe, the host's unit and the examples for Kubernetes: what of them can be held to the code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from yrnode.api.app import _ROUTES
from yrnode.cli import probe, run
from yrnode.cli.daemon import stop_seconds
from yrnode.cli.main import Parser, _common
from yrnode.components import node as components
from yrnode.components.node import host_of
from yrnode.config.cluster import Cluster
from yrnode.config.files import DEFAULT_FILE
from yrnode.config.layout import api_of, places
from yrnode.config.load import load, validate
from yrnode.config.node import this_node
from yrnode.config.yaml import parse
from yrnode.node import world
from yrnode.preflight.memory import BROADCAST, RESPONSE

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
DOCKERFILE = (PACKAGING / "container/Dockerfile").read_text("utf-8")
UNIT = PACKAGING / "container/yrnode-container.service"
EXAMPLES = sorted((PACKAGING / "kubernetes").glob("*.yaml"))
SHIPPED = sorted((ROOT / "config").glob("*.yaml"))


def words(instruction: str) -> list[str]:
    """Of the Dockerfile's last one of this name, in its form without a shell."""
    found: list[str] = json.loads(re.findall(rf"^{instruction}\b.*?(\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])
    return found


def unit(key: str) -> list[str]:
    text = UNIT.read_text("utf-8").replace("\\\n", " ")
    return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)


def create_line() -> list[str]:
    (line,) = (shlex.split(line)[2] for line in unit("ExecStartPre") if " create " in line)
    return shlex.split(line)


def stop_s(cluster: Cluster) -> float:
    """The longest ordered stop of any of its nodes."""
    longest = 0.0
    for node in cluster.nodes:
        specs = components.specs(host_of(cluster, node, {}, scripts=()))
        longest = max(longest, stop_seconds(world.make(specs, 0.0, node).snapshot(0.0)))
    return longest


# the image


def test_the_first_process_is_the_init_and_the_health_check_is_the_probe() -> None:
    program, verb, *rest = words("ENTRYPOINT")
    parser = Parser("yrnode run", "")
    run.arguments(parser)
    _common(parser)
    assert (program, verb, parser.parse_args(rest).init) == ("/usr/bin/yrnode", "run", True)
    assert words("HEALTHCHECK") == ["/usr/bin/yrnode", "probe", "live"]
    assert words("CMD") == []
    assert f"ln -s /opt/yrnode/bin/yrnode {program}" in DOCKERFILE
    # the check itself gives up before docker does
    (timeout,) = re.findall(r"--timeout=(\d+)s", DOCKERFILE)
    assert int(timeout) > 2 * probe._TIMEOUT_S


def test_what_is_copied_is_there_and_is_all_that_a_wheel_needs() -> None:
    named = [w for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE) for w in line.split()[:-1]]
    assert [w for w in named if not (ROOT / w).exists()] == []
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    keys = (
        'readme = "(.*)"',
        r'license-files = \["(.*)"\]',
        r'targets.wheel\]\npackages = \["(.*)"\]',
        '"(.*)" = "yrnode/',
    )
    needs = [re.findall(key, project) for key in keys]
    assert needs == [["README.md"], ["LICENSE"], ["yrnode"], ["config"]]
    assert {name for (name,) in needs} <= set(named)


# the host's unit


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    where = tmp_path / UNIT.name
    where.write_text(UNIT.read_text("utf-8"))
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", where], capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        pytest.skip("no systemd-analyze here")
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert ours == []


def test_the_container_sees_what_the_guides_give_it_and_keeps_what_must_outlive_it() -> None:
    line = create_line()
    values = [w.partition("=")[2] for w in line if w.startswith(("--volume=", "--device="))]
    targets = {v.split(":")[1] if ":" in v else v for v in values}
    assert {"/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"} <= targets
    assert {"/usr/local/dcmi", "/usr/local/Ascend/driver", "/usr/local/bin/npu-smi"} <= targets
    assert {"/etc/ascend_install.info", "/etc/hccn.conf"} <= targets
    own = places(load(ROOT / "config/glm5-w4a8-a3-single.yaml"), "n0")
    assert {str(own.state_dir), str(own.log_dir), str(Path(DEFAULT_FILE).parent)} <= targets
    assert str(own.run_dir) not in targets
    assert line[-1] == "${IMAGE}", "whatever follows would be words for yrnode run"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda f: f.stem)
def test_every_patience_is_longer_than_the_ordered_stop(file: Path) -> None:
    needed = stop_s(load(file))
    (own,) = (int(w.partition("=")[2]) for w in create_line() if w.startswith("--stop-timeout="))
    (stop,) = (int(re.findall(r"-t (\d+)", line)[0]) for line in unit("ExecStop"))
    (whole,) = (int(v.removesuffix("s")) for v in unit("TimeoutStopSec"))
    assert needed < own == stop < whole


def test_a_reload_is_another_daemon_and_nothing_more() -> None:
    assert all("kill --signal=USR1 yrnode" in line for line in unit("ExecReload"))
    assert unit("ExecReload")
    assert unit("KillMode") == ["process"]


# Kubernetes


def documents(file: Path) -> list[dict[str, Any]]:
    return list(YAML(typ="safe", pure=True).load_all(file))


def config_map(file: Path) -> dict[str, Any]:
    (found,) = (d for d in documents(file) if d["kind"] == "ConfigMap")
    return found


def cluster_of(file: Path) -> Cluster:
    return validate(parse(config_map(file)["data"]["cluster.yaml"].encode(), "cluster.yaml"), Path("/etc/yrnode"))


def pod(file: Path) -> dict[str, Any]:
    (found,) = (d for d in documents(file) if d["kind"] != "ConfigMap")
    spec = found["spec"]
    template = spec.get("template") or spec["leaderWorkerTemplate"]["workerTemplate"]
    return template["spec"]


def container(file: Path) -> dict[str, Any]:
    (found,) = pod(file)["containers"]
    return found


each = pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.stem)


def test_there_are_examples() -> None:
    kinds = {d["kind"] for file in EXAMPLES for d in documents(file)}
    assert kinds == {"ConfigMap", "DaemonSet", "LeaderWorkerSet"}


@each
def test_the_pods_name_is_the_nodes_and_the_file_has_it(file: Path) -> None:
    cluster = cluster_of(file)
    (variable,) = container(file)["env"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    for node in cluster.nodes:
        assert this_node(cluster, None, {variable["name"]: node}) == node


@each
def test_the_file_is_where_yrnode_looks_for_it_and_may_change_there(file: Path) -> None:
    mounts = {m["name"]: m for m in container(file)["volumeMounts"]}
    volumes = {v["name"]: v for v in pod(file)["volumes"]}
    assert mounts.keys() == volumes.keys()
    assert mounts["cluster"]["mountPath"] == str(Path(DEFAULT_FILE).parent)
    assert Path(DEFAULT_FILE).name in config_map(file)["data"]
    assert "subPath" not in mounts["cluster"]
    assert volumes["cluster"]["configMap"]["name"] == config_map(file)["metadata"]["name"]


@each
def test_what_must_outlive_the_pod_is_on_the_host_and_nothing_else(file: Path) -> None:
    cluster = cluster_of(file)
    volumes = {v["name"]: v for v in pod(file)["volumes"]}
    hosts = {m["mountPath"]: volumes[m["name"]].get("hostPath") for m in container(file)["volumeMounts"]}
    for node in cluster.nodes:
        own = places(cluster, node)
        assert hosts[str(own.state_dir)]
        assert hosts[str(own.log_dir)]
        assert str(own.run_dir) not in hosts
    for group in cluster.groups.values():
        assert hosts[str(Path(group.model).parent)]


@each
def test_the_probes_ask_what_there_is_and_none_can_restart_an_engine(file: Path) -> None:
    cluster, found = cluster_of(file), container(file)
    for name, path in (("startupProbe", "/livez"), ("readinessProbe", "/readyz")):
        asked = found[name]["httpGet"]
        assert asked["path"] == path
        assert path in _ROUTES
        for node in cluster.nodes:
            own = api_of(cluster, node)
            assert (asked["host"], asked["port"]) == (own.host, own.port)
    assert pod(file)["hostNetwork"] is True, "the kubelet asks on the host's loopback address"
    assert "livenessProbe" not in found
    # the first process itself ends a daemon that does not get as far: before the kubelet does
    from yrnode.init.parent import ABORT_S, START_S

    start = found["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] > START_S + ABORT_S


@each
def test_there_is_time_for_the_ordered_stop_and_room_for_the_engines(file: Path) -> None:
    cluster = cluster_of(file)
    assert stop_s(cluster) < pod(file)["terminationGracePeriodSeconds"]
    (shm,) = (v["emptyDir"]["sizeLimit"] for v in pod(file)["volumes"] if v["name"] == "shm")
    npus = container(file)["resources"]["limits"]["huawei.com/Ascend910"]
    for node in cluster.nodes:
        widths = [g.tensor_parallel for g in cluster.groups.values() for _ in range(g.ranks.get(node, 0))]
        assert sum(widths) == npus
        assert sum(BROADCAST + RESPONSE * width for width in widths) < int(shm.removesuffix("Gi")) * 1024**3
    assert "memory" not in container(file)["resources"]["limits"]


@each
def test_nothing_but_a_person_restarts_a_whole_group(file: Path) -> None:
    (found,) = (d for d in documents(file) if d["kind"] != "ConfigMap")
    if found["kind"] == "DaemonSet":
        assert found["spec"]["updateStrategy"] == {"type": "OnDelete"}
        return
    spec = found["spec"]["leaderWorkerTemplate"]
    assert (spec["restartPolicy"], found["spec"]["startupPolicy"]) == ("None", "LeaderCreated")
    cluster = cluster_of(file)
    terms = pod(file)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    names = [t["matchFields"][0]["values"] for t in terms["nodeSelectorTerms"]]
    assert names == [[node] for node in cluster.nodes]
    assert spec["size"] == len(cluster.nodes)
