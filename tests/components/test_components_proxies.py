"""Proxies never stand between this cluster's own parts; a rank keeps its user's for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.conftest import CALLER, HostOf, by_name
from yrnode.components.proxies import notes

HOSTS = ["127.0.0.1", "localhost", "::1", "10.0.0.1", "10.0.0.2"]
SECRET = "http://user:secret@proxy.corp:3128"
NAMES = ("http_proxy", "HTTPS_PROXY", "all_proxy", "grpc_proxy")
OWN = {**CALLER, **dict.fromkeys(NAMES, SECRET), "NO_PROXY": "mine.corp"}
FILE = """
cluster: c
nodes: {{n0: {{address: 10.0.0.1}}, n1: {{address: 10.0.0.2}}}}
etcd: {{nodes: [n0]}}
env_from: [{env_from}]
env: {{{env}}}
groups: {{serve: {{ranks: {{n0: 1}}, model: m, unset: [{unset}]}}}}
router: {{node: n0, kind: command, argv: /bin/sh, env: {{{env}}}}}
"""


def text(tmp_path: Path, script: str = "", env: str = "", unset: str = "") -> str:
    path = tmp_path / "set.sh"
    path.write_text(script)
    return FILE.format(env_from=path, env=env, unset=unset)


def bypassed(env: dict[str, str]) -> list[str]:
    assert env["no_proxy"] == env["NO_PROXY"]
    return env["no_proxy"].split(",")


def test_none_of_the_daemons_own_reaches_anybody(host_of: HostOf, tmp_path: Path) -> None:
    host = host_of(text(tmp_path), caller=OWN)
    for spec in by_name(host).values():
        assert not [name for name in spec.env if name in NAMES]
        assert bypassed(dict(spec.env)) == HOSTS
    (line,) = notes(host, by_name(host).values())
    names = "HTTPS_PROXY, all_proxy, grpc_proxy, http_proxy"
    whom = "etcd, worker, rank/serve/0, router"
    assert line == f"proxy variables of yrnode's own environment are dropped for {whom}: {names}"


@pytest.mark.parametrize("where", ["env_from", "env"])
def test_what_a_user_sets_for_ranks_and_router_stays_beside_our_own(
    host_of: HostOf, tmp_path: Path, where: str
) -> None:
    script = f"export http_proxy={SECRET} NO_PROXY=.corp,10.0.0.2 no_proxy=mine\n" if where == "env_from" else ""
    env = f"http_proxy: '{SECRET}', NO_PROXY: '.corp,10.0.0.2', no_proxy: mine" if where == "env" else ""
    host = host_of(text(tmp_path, script, env), caller=OWN)
    specs = by_name(host)
    for name in ("rank/serve/0", "router"):
        assert specs[name].env["http_proxy"] == SECRET
        hosts = bypassed(dict(specs[name].env))
        assert hosts == ["mine", ".corp", "10.0.0.2", "127.0.0.1", "localhost", "::1", "10.0.0.1"]
    for name in ("etcd", "worker"):
        assert "http_proxy" not in specs[name].env
        assert bypassed(dict(specs[name].env)) == HOSTS
    lines = notes(host, specs.values())
    assert [line.partition(" has a proxy (http_proxy), not for ")[0] for line in lines[1:]] == [
        *("rank/serve/0", "router")
    ]
    assert "secret" not in str(lines)


def test_a_star_stays_a_star(host_of: HostOf, tmp_path: Path) -> None:
    specs = by_name(host_of(text(tmp_path, "export no_proxy='*'\n")))
    assert (bypassed(dict(specs["rank/serve/0"].env)), bypassed(dict(specs["etcd"].env))) == (["*"], HOSTS)


def test_who_unsets_it_gets_what_he_asked_for_and_is_told(host_of: HostOf, tmp_path: Path) -> None:
    host = host_of(text(tmp_path, f"export http_proxy={SECRET}\n", unset="no_proxy, NO_PROXY"))
    specs = by_name(host)
    assert "no_proxy" not in specs["rank/serve/0"].env
    (rank, router) = notes(host, specs.values())
    assert rank == "rank/serve/0 has a proxy (http_proxy), for every address, also this cluster's own"
    assert "not for 127.0.0.1" in router


def test_no_word_where_there_is_no_proxy(host_of: HostOf, tmp_path: Path) -> None:
    host = host_of(text(tmp_path))
    assert notes(host, by_name(host).values()) == []
