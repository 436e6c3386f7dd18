"""`yrnode check` on this very machine: what it says, how it ends, and that it changes nothing and ends in time."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.etcd import encoded, post
from tests.support.keys import etcd_url
from tests.support.node import YrNode, cluster_text, yrnode
from yrnode.cli.check import rendered
from yrnode.preflight.finding import blocker, good, not_here, warning
from yrnode.process.lock import held

LONGEST_S = 10.0


@pytest.fixture
def node() -> Iterator[YrNode]:
    with yrnode(cluster_text(ranks=1), start=False) as node:
        yield node


def edit(node: YrNode, old: str, new: str) -> None:
    text = node.config.read_text()
    assert old in text
    node.config.write_text(text.replace(old, new))


def as_json(node: YrNode, code: int) -> dict[str, Any]:
    done = node.cli("check", "-o", "json", timeout=90)
    assert done.returncode == code, done
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.stderr.splitlines() == found["host"]
    assert found["ok"] is (code == 0)
    return found


def by_name(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {c["name"]: c for c in found["checks"]}


def test_this_machine_is_good_for_the_stand_in(node: YrNode) -> None:
    before = sorted(node.dir.rglob("*"))
    found = as_json(node, 0)
    assert {"file", "errors", "notes", "cluster", "nodes", "groups"} <= set(found)
    checks = by_name(found)
    names = ("directories", "programs", "ports", "memory", "hash seed", "yr.datasystem", "dscli version")
    assert {name: checks[name]["verdict"] for name in names} == dict.fromkeys(names, "good")
    # this wheel's etcd, alone
    assert checks["etcd version"]["verdict"] == "warning"
    assert checks["other nodes"]["verdict"] == "not here"
    assert {frozenset(c) for c in found["checks"]} == {frozenset({"name", "verdict", "found", "needed", "cure"})}
    assert all(c["cure"] for c in found["checks"] if c["verdict"] in ("warning", "blocker"))
    done = node.cli("check", timeout=90)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{node.config}: good: cluster ")
    assert "good      ports: free" in lines
    at = next(i for i, line in enumerate(lines) if line.startswith("warning   etcd version: 3.5.1"))
    assert [line.split(":")[0].strip() for line in lines[at + 1 : at + 3]] == ["needed", "cure"]
    assert sorted(node.dir.rglob("*")) == before, "looking must change nothing"


def test_a_blocker_is_exit_1_with_its_line(node: YrNode) -> None:
    edit(node, "shared_memory: 256MB", "shared_memory: 900TB")
    edit(node, "yrnode.demo.engine]", "yrnode.demo.engine], dscli: /nowhere/dscli")
    found = as_json(node, 1)
    checks = by_name(found)
    assert [checks[name]["verdict"] for name in ("memory", "programs")] == ["blocker", "blocker"]
    assert "bin.dscli: /nowhere/dscli is no program; correct its path under bin: in the cluster file" in found["host"]
    assert any("for datasystem.shared_memory); lower datasystem.shared_memory" in line for line in found["host"])
    # what yrnode itself waits for, or heals, is no reason to refuse
    done = node.cli("run")
    assert (done.returncode, "/nowhere/dscli" in done.stderr, "shared_memory" in done.stderr) == (2, True, False)


@pytest.mark.alone
def test_a_program_that_hangs_holds_nothing_up(node: YrNode) -> None:
    slow = node.dir / "slow"
    slow.write_text("#!/bin/sh\nsleep 77\n")
    slow.chmod(0o755)
    edit(node, "yrnode.demo.engine]", f"yrnode.demo.engine], dscli: {slow}")
    began = time.monotonic()
    checks = by_name(as_json(node, 0))
    assert time.monotonic() - began < LONGEST_S
    assert checks["dscli version"]["found"] == "no answer within 5 s"
    assert checks["yr.datasystem"]["verdict"] == "good"


def test_beside_a_daemon_what_it_holds_is_no_hindrance(node: YrNode) -> None:
    node.start()
    node.wait("the lock", lambda: held(node.home))
    node.wait("a listener", lambda: node.get("/livez")[0] == 200 and node.component("etcd").get("pid"))
    checks = by_name(as_json(node, 0))
    assert "ports" not in checks
    assert (checks["memory"]["verdict"], checks["other nodes"]["verdict"]) == ("not here", "not here")
    # what the others would compare stands in its key
    node.wait("its facts", lambda: "PYTHONHASHSEED of serve" in own_key(node).get("facts", {}))


def own_key(node: YrNode) -> dict[str, Any]:
    key = encoded(f"/yrnode/{node.status()['cluster']}/nodes/n0")
    found = post(etcd_url(node), "kv/range", {"key": key}).get("kvs")
    return json.loads(base64.b64decode(found[0]["value"])) if found else {}


def test_run_says_once_what_check_warns_of(node: YrNode) -> None:
    edit(node, "model: demo", "model: demo\n    env: {PYTHONHASHSEED: random}")
    assert by_name(as_json(node, 1))["hash seed"]["verdict"] == "blocker"
    # it costs hits, and nothing else
    node.start()
    node.wait("a listener", lambda: node.get("/livez")[0] == 200)
    assert node.stop() == 0
    assert node.output.read_text().count("check: hash seed: PYTHONHASHSEED is not fixed") == 1


def test_what_blocks_stands_last() -> None:
    found = [
        blocker("b", "bad", "better", "do it"),
        good("g", "fine", "4096"),
        warning("w", "odd", "", "look"),
        not_here("n", "no NPU"),
    ]
    assert rendered(found) == [
        "good      g: fine (needed: 4096)",
        "not here  n: no NPU",
        "warning   w: odd",
        "            cure: look",
        "blocker   b: bad",
        "            needed: better",
        "            cure: do it",
    ]
