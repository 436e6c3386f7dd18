"""HCCL's ports: what may meet others is a doubt and no fault, and the order of groups is told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from yrnode.config import hccl
from yrnode.config.cluster import Cluster
from yrnode.config.digest import group_digest
from yrnode.config.load import load
from yrnode.config.ports import doubts
from yrnode.preflight import hccl as check

HEAD = "cluster: demo\nnodes: {n0: {address: 10.0.0.1}}\n"
ONE = "groups: {serve: {ranks: {n0: 2}, model: m, tensor_parallel: 2, port: PORT, ENV}}\n"
A = "  a: {ranks: {n0: 1}, model: m, tensor_parallel: 2}\n"
B = "  b: {ranks: {n0: 1}, model: m, tensor_parallel: 2, port: 7000, devices: {n0: [2, 3]}}\n"


def cluster(text: str, tmp_path: Path) -> Cluster:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + text)
    return load(path)


def one(tmp_path: Path, port: int, env: str = "") -> Cluster:
    return cluster(ONE.replace("PORT", str(port)).replace("ENV", env), tmp_path)


def test_hccls_own_range_refuses_nothing_and_reaches_as_far_as_devices_do(tmp_path: Path) -> None:
    near = one(tmp_path, 60003)
    assert hccl.range_of(near, "serve", "n0") == hccl.Range(60000, 4, ("groups", "serve"), implied=True)
    assert [(first.what, use.what, port) for first, use, port in doubts(near, "n0")] == [
        ("HCCL of serve", "group serve", 60003)
    ]
    (found,) = check.judge(near, "n0")
    assert (found.verdict, found.refuses) == ("warning", False)
    assert found.found == "HCCL of serve and group serve (groups.serve.port) may both take port 60003"
    assert found.cure == "write another port, or HCCL_IF_BASE_PORT under groups.serve.env"
    (good,) = check.judge(one(tmp_path, 60004), "n0")
    assert good.verdict == "good"
    # the number of a device counts, not how many there are
    high = one(tmp_path, 60007, "devices: {n0: [4, 5, 6, 7]}")
    assert check.judge(high, "n0")[0].verdict == "warning"


def test_one_base_for_two_groups_of_a_node_is_a_doubt(tmp_path: Path) -> None:
    both = cluster(f"groups:\n{A}{B}env: {{HCCL_IF_BASE_PORT: 50000}}\n", tmp_path)
    (found,) = check.judge(both, "n0")
    assert (found.verdict, found.refuses) == ("warning", False)
    assert found.found == "HCCL of a and HCCL of b (env.HCCL_IF_BASE_PORT) may both take port 50000"
    assert found.cure == "write HCCL_IF_BASE_PORT of its own for each group"


def test_groups_that_share_a_node_have_the_digest_of_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, turned = cluster(f"groups:\n{A}{B}", tmp_path), cluster(f"groups:\n{B}{A}", tmp_path)
    assert group_digest(shared, "a") != group_digest(turned, "a")
    alone = one(tmp_path, 7000)
    before = group_digest(alone, "serve"), group_digest(shared, "a")
    monkeypatch.setattr(hccl, "derived_base", lambda *_: None)
    # one that shares no node keeps the digest that it always had
    assert group_digest(alone, "serve") == before[0]
    assert group_digest(shared, "a") == group_digest(turned, "a") != before[1]
