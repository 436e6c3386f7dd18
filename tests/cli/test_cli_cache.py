"""`yrnode cache`: against this node's daemon, and against those of other nodes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.api.fake import FakeNode, snapshot, view
from tests.api.test_api_cache import BEGAN, R0, rank
from tests.cli.test_cli_daemon import yrnode
from tests.support.etcd import free_ports
from yrnode.api.server import Api
from yrnode.model.board import Board, Peer
from yrnode.model.identity import Identity
from yrnode.model.state import Plane, State
from yrnode.policy.hits import Counts


class Lab:
    """Daemons of n0, n1 and n2; `api[n]` is what n's key says."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.ports = dict(zip(("n0", "n1", "n2"), free_ports(3), strict=True))
        own = "\n".join(
            f"  {n}: {{address: 127.0.0.{i + 2}, state_dir: ./{n}, run_dir: ./{n}/run, "
            f'api: {{listen: "127.0.0.{i + 2}:{port}"}}}}'
            for i, (n, port) in enumerate(self.ports.items())
        )
        self.file = where / "cluster.yaml"
        ranks = ", ".join(f"{n}: 1" for n in self.ports)
        self.file.write_text(
            f"cluster: lab\nnodes:\n{own}\ngroups: {{serve: {{ranks: {{{ranks}}}, port: 7000, model: m}}}}\n"
        )
        self.api = {n: f"127.0.0.{i + 2}:{port}" for i, (n, port) in enumerate(self.ports.items())}

    @asynccontextmanager
    async def daemon(self, name: str, *counts: Counts, worker: State = State.READY) -> AsyncIterator[FakeNode]:
        (self.where / name).mkdir(exist_ok=True)
        node = FakeNode(self.where / name)
        node.identity = Identity(name, "lab", "1", 0.0)
        peers = {n: Peer(n, api=api) for n, api in self.api.items() if api}
        node.state = snapshot(view("worker", Plane.CACHE, worker, began=BEGAN), rank(R0), board=Board(nodes=peers))
        group = node.state.groups["serve"]
        node.state.groups["serve"] = group.__class__(**{**group.__dict__, "nodes": tuple(self.ports)})  # type: ignore[index]
        for i, one in enumerate(counts):
            node.metrics.hits.note(R0, "a", one, 950.0 + 10 * i)
        host, _, port = f"127.0.0.{2 + int(name[1])}:{self.ports[name]}".rpartition(":")
        server = Api(node, host, int(port), self.where / name / "run" / "yrnode.sock")
        await server.start()
        try:
            yield node
        finally:
            await server.close()

    async def cache(self, *words: str) -> tuple[int, str, str]:
        return await yrnode("cache", *words, "--config", self.file, "--node", "n0")  # type: ignore[no-any-return]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


SMALL = (Counts(0, 0, 0, 0), Counts(1000, 500, 500, 250))
LARGE = (Counts(0, 0, 0, 0), Counts(9000, 9000, 0, 0))


async def test_this_node(lab: Lab) -> None:
    async with lab.daemon("n0", *SMALL):
        code, out, err = await lab.cache()
        assert (code, err) == (0, "")
        row = next(x for x in out.splitlines() if R0 in x)
        assert row.split() == ["n0", R0, "50.0%", "50.0%", "75.0%", "50.0%", "50.0%", "75.0%", "hits"]
        code, out, _ = await lab.cache("-o", "json", "--window", "2m")
        found = json.loads(out)
        assert (code, found["window_s"], found["ranks"][R0]["eff_win"]) == (0, 120.0, 0.75)


@pytest.mark.parametrize("window", ["5s", "1h", "60", "soon"])
async def test_a_window_that_is_not_kept(lab: Lab, window: str) -> None:
    code, _, err = await lab.cache("--window", window)
    assert code == 2
    assert err.startswith("cache: --window:")


async def test_a_connector_that_is_off_is_not_good(lab: Lab) -> None:
    async with lab.daemon("n0", Counts(), Counts(1000, 0, 0, 0)):
        code, out, _ = await lab.cache()
        assert code == 1
        assert "connector-off" in out


async def test_all_nodes_are_summed_by_tokens(lab: Lab) -> None:
    async with lab.daemon("n0", *SMALL), lab.daemon("n1", *LARGE), lab.daemon("n2"):
        code, out, _ = await lab.cache("--all", "-o", "json")
        found = json.loads(out)
        assert (code, list(found["nodes"])) == (0, ["n0", "n1", "n2"])
        assert found["all"]["eff_win"] == pytest.approx(9750 / 10000)
        assert found["nodes"]["n2"]["ranks"][R0]["meaning"] == "no-data"
        _, out, _ = await lab.cache("--all")
        assert "97.5%" in next(x for x in out.splitlines() if x.split()[:2] == ["-", "all"])


async def test_nodes_that_do_not_answer_are_named(lab: Lab) -> None:
    lab.api["n1"] = ""
    async with lab.daemon("n0", *SMALL):
        code, out, _ = await lab.cache("--all", "-o", "json")
        nodes = json.loads(out)["nodes"]
        assert code == 1
        assert nodes["n1"]["error"] == "its yrnode is not there, see yrnode status"
        assert nodes["n2"]["error"] == f"{lab.api['n2']}: Connection refused"


async def test_a_peer_that_listens_on_loopback_is_not_mistaken_for_this_node(lab: Lab) -> None:
    lab.api["n1"] = lab.api["n0"]
    async with lab.daemon("n0", *SMALL), lab.daemon("n2", *SMALL):
        code, out, _ = await lab.cache("--all")
        assert code == 1
        assert "n1: " in out
        assert "api.listen" in out
