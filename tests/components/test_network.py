"""Which network ranks are told to use, per node and per group."""

from __future__ import annotations

import json

import pytest

from tests.components.conftest import BASE, CALLER, HostOf, by_name
from yrnode.cli.main import main
from yrnode.components import network, node
from yrnode.components.host import Host
from yrnode.config import hccl
from yrnode.model.spec import NIC
from yrnode.process.launch import _environment

NAMES = ("HCCL_IF_IP", *network.INTERFACES, hccl.BASE_PORT)
TWO = """
cluster: c
nodes: {n0: {address: 10.0.0.1, nic: bond0}, n1: {address: 10.0.0.2, nic: eth1}, n2: {address: 10.0.0.3, nic: eth2}}
groups:
  a: {ranks: {n0: 1, n1: 1}, model: m, tensor_parallel: 4}
  b: {ranks: {n1: 1}, model: m, tensor_parallel: 4, port: 7000, devices: {n1: [4, 5, 6, 7]}}
  c: {ranks: {n2: 1}, model: m, tensor_parallel: 4}
"""


def told(host: Host, rank: str) -> dict[str, str]:
    return {name: value for name, value in by_name(host)[rank].env.items() if name in NAMES}


def on(address: str, nic: str, **more: str) -> dict[str, str]:
    return {"HCCL_IF_IP": address, **dict.fromkeys(network.INTERFACES, nic), **more}


def test_each_rank_uses_its_own_nodes_address_and_interface(host_of: HostOf) -> None:
    assert told(host_of(TWO, "n2"), "rank/c/0") == on("10.0.0.3", "eth2")


def test_groups_that_share_a_node_have_ranges_of_their_own_on_all_of_their_nodes(host_of: HostOf) -> None:
    assert told(host_of(TWO, "n0"), "rank/a/0") == on("10.0.0.1", "bond0", HCCL_IF_BASE_PORT="61000")
    assert told(host_of(TWO, "n1"), "rank/a/1") == on("10.0.0.2", "eth1", HCCL_IF_BASE_PORT="61000")
    assert told(host_of(TWO, "n1"), "rank/b/0") == on("10.0.0.2", "eth1", HCCL_IF_BASE_PORT="61032")


def test_what_is_typed_wins(host_of: HostOf) -> None:
    mine = "env: {HCCL_IF_IP: 1.2.3.4, HCCL_IF_BASE_PORT: 50000, TP_SOCKET_IFNAME: x}"
    text = TWO.replace("port: 7000", f"port: 7000, {mine}")
    expected = {**on("1.2.3.4", "eth1", HCCL_IF_BASE_PORT="50000"), "TP_SOCKET_IFNAME": "x"}
    assert told(host_of(text, "n1"), "rank/b/0") == expected
    text = TWO.replace("port: 7000", "port: 7000, env: {HCCL_HOST_SOCKET_PORT_RANGE: auto}")
    assert hccl.BASE_PORT not in told(host_of(text, "n1"), "rank/b/0")
    text = TWO.replace("port: 7000", "port: 7000, unset: [HCCL_IF_IP]")
    assert "HCCL_IF_IP" not in told(host_of(text, "n1"), "rank/b/0")


def test_what_env_from_sets_wins_too(host_of: HostOf, tmp_path) -> None:
    script = tmp_path / "set.sh"
    script.write_text("export HCCL_SOCKET_IFNAME=hb0 HCCL_HOST_SOCKET_PORT_RANGE=auto\n")
    found = told(host_of(TWO + f"env_from: [{script}]\n", "n1"), "rank/b/0")
    assert found == {**on("10.0.0.2", "eth1"), "HCCL_SOCKET_IFNAME": "hb0"}


def test_on_a_loopback_address_gloo_alone_is_told(demo: Host, host_of: HostOf) -> None:
    assert told(demo, "rank/serve/0") == {"GLOO_SOCKET_IFNAME": "lo"}
    # several nodes and groups of one host
    loopback = TWO.replace("10.0.0.", "127.0.0.").replace(", nic: eth1", "")
    assert told(host_of(loopback, "n1"), "rank/b/0") == {"GLOO_SOCKET_IFNAME": "lo"}
    assert hccl.range_of(host_of(loopback, "n1").cluster, "b", "n1") is None


def test_an_address_that_lives_on_lo_tells_no_interface(host_of: HostOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "nic_of", lambda _: "lo")
    assert told(host_of(BASE), "rank/serve/0") == {"HCCL_IF_IP": "10.0.0.1"}
    # one that is typed is what is meant
    assert told(host_of(BASE.replace("10.0.0.1", "10.0.0.1, nic: lo")), "rank/serve/0") == on("10.0.0.1", "lo")


def test_an_interface_that_only_the_node_knows(host_of: HostOf, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rendered elsewhere it is said so; at a start it is left to vLLM."""
    spec = by_name(host_of(BASE))["rank/serve/0"]
    assert {spec.env[name] for name in network.INTERFACES} == {NIC}
    env = _environment(spec, {"YRNODE_LIFE": "1"})
    assert env["HCCL_IF_IP"] == "10.0.0.1"
    assert not env.keys() & set(network.INTERFACES)
    assert env.keys() == spec.env.keys() - set(network.INTERFACES) | {"YRNODE_LIFE"}
    assert main(["render", "--all", "--config", str(tmp_path / "cluster.yaml"), "-o", "json"]) == 0
    (rendered,) = json.loads(capsys.readouterr().out)
    rank = next(c for c in rendered["components"] if c["name"] == "rank/serve/0")
    assert {rank["env"][name] for name in network.INTERFACES} == {"<found on n0>"}


def test_the_interface_is_found_from_the_address(host_of: HostOf) -> None:
    assert host_of(BASE.replace("10.0.0.1", "127.0.0.1")).nic == "lo"
    assert host_of(BASE).nic is None
    assert host_of(TWO, "n1").nic == "eth1"


def test_a_script_of_another_host_is_told_of_and_left_out(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    here, gone = tmp_path / "here.sh", tmp_path / "gone.sh"
    here.write_text("export FROM_HERE=1\n")
    file = tmp_path / "c.yaml"
    file.write_text(f"{BASE}env_from: [{here}, {gone}]\n")
    assert main(["render", "--all", "--config", str(file), "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == f"env_from: {gone} is not on this host: what it sets is not shown\n"
    ranks = [c for c in json.loads(out)[0]["components"] if c["plane"] == "engine"]
    assert [c["env"]["FROM_HERE"] for c in ranks] == ["1"]


def test_host_of_needs_no_scripts_of_the_file(host_of: HostOf) -> None:
    cluster = host_of(BASE).cluster.model_copy(update={"env_from": ("/nowhere.sh",)})
    assert node.host_of(cluster, "n0", CALLER, ()).engine_env["PATH"] == CALLER["PATH"]
