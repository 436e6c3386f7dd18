"""etcd on several nodes: what each member runs, how it proves itself, and how the death of an outcast reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.conftest import BASE, THREE, HostOf, by_name, flags
from yrnode.components import etcd
from yrnode.model.cause import Reason
from yrnode.process.exit import Exit

REMOVED = '{"level":"warn","msg":"server error","error":"the member has been permanently removed from the cluster"}'
HINT = '{"level":"warn","msg":"data-dir used by this member must be removed"}'
DIAL = (
    '{"level":"warn","msg":"peer became inactive (message send to peer failed)","error":"failed to dial fe0 on '
    'Message (the member has been permanently removed from the cluster)"}'
)
LATER = '{"level":"info","msg":"stopped remote peer","remote-peer-id":"fe0a8bd7a2edbb57"}'
FATAL = '{"level":"fatal","msg":"discovery failed","error":"%s","stacktrace":"x"}'
BOUND = FATAL % "listen tcp 127.0.0.1:2379: bind: address already in use"


def test_a_member_of_three(host_of: HostOf) -> None:
    spec = by_name(host_of(THREE, "n1"))["etcd"]
    given = flags(spec.argv)
    assert given["initial-cluster"] == "n0=http://10.0.0.1:2380,n1=http://10.0.0.2:2380,n2=http://10.0.0.3:2380"
    assert given["initial-cluster-state"] == "new"
    assert spec.replicas == 3
    assert [c.name for c in spec.gates] == ["quorum", "write"]
    quorum, read = (next(c for c in spec.checks if c.name == name) for name in ("quorum", "read"))
    assert not quorum.act, "a quorum that is lost is no fault of this member"
    assert quorum.params == {
        "peer": "http://10.0.0.2:2380",
        "others": {"n0": "http://10.0.0.1:2380", "n2": "http://10.0.0.3:2380"},
    }
    assert read.params["url"] == "http://10.0.0.2:2379"


def test_one_member_alone_has_no_others_to_look_at(host_of: HostOf) -> None:
    spec = by_name(host_of(BASE))["etcd"]
    assert spec.replicas == 1
    assert [c.name for c in spec.gates] == ["write"]
    assert [c.params for c in spec.checks if c.name == "read"] == [{"key": "/yrnode/c/probe/n0"}]


@pytest.mark.parametrize(
    ("lines", "reason", "evidence"),
    [
        ([REMOVED, HINT, DIAL, LATER], Reason.MEMBER, "server error: the member has been permanently removed"),
        ([FATAL % "member f1f8 has already been bootstrapped"], Reason.MEMBER, "member f1f8 has already been"),
        ([FATAL % "error validating peerURLs {}: member count is unequal"], Reason.MEMBER, "member count is unequal"),
        # connections of a member that lives say so of others
        ([DIAL, LATER], Reason.EXITED, ""),
        ([DIAL, BOUND], Reason.EXITED, "address already in use"),
    ],
)
def test_an_outcast(lines: list[str], reason: Reason, evidence: str) -> None:
    cause = etcd.read_death(Exit(code=0), True, lines)
    assert cause.reason is reason
    assert evidence in cause.evidence
    assert cause.fault


def test_what_damage_costs_a_member_of_three() -> None:
    lines = [FATAL % "walpb: crc mismatch"]
    alone, member = (etcd.read_death(Exit(code=1), True, lines, Path("/data"), n) for n in (1, 3))
    assert alone.reason is member.reason is Reason.DAMAGED
    assert "the workers restart" in alone.evidence
    assert "nothing else restarts" in member.evidence
