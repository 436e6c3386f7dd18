"""What status says of the router's members and of a drain, for programs and for people."""

from __future__ import annotations

from typing import Any

from tests.api.fake import snapshot
from yrnode.api.status import status
from yrnode.cli.status import text
from yrnode.model.identity import Identity
from yrnode.model.routing import Drain, Judged, Role, Route, RouterView, RouteView, Standing

P = Route("rank/p/0", "p", "n0", Role.PREFILL, "http://10.0.0.1:6600", ("n0",))
D = Route("rank/d/0", "d", "n1", Role.DECODE, "http://10.0.0.2:6600", ("n1",))


def told(**facts: Any) -> dict[str, Any]:
    return status(snapshot(**facts), Identity("n0", "lab", "9", 0.0), 1000.0, 2_000_000_000.0)


def router(**more: Any) -> RouterView:
    members = {
        P.url: RouteView(P, Judged(Standing.IN, "ready, generation 3"), listed=True),
        D.url: RouteView(D, Judged(Standing.OUT, "n1 is starting"), listed=True, leaving=True),
    }
    return RouterView("ascend-proxy", "http://10.0.0.1:8000", members, **more)


def test_a_node_without_a_router_and_a_drain_says_so() -> None:
    found = told()
    assert (found["router"], found["drain"]) == (None, None)
    assert not any("router's" in line or "draining" in line for line in text(found))


def test_who_is_behind_the_router() -> None:
    found = told(router=router(others=("http://10.9.9.9:1",)))
    member = {"rank": "rank/p/0", "group": "p", "node": "n0", "role": "prefill", "url": P.url, "state": "in"}
    assert found["router"]["members"][0] == {**member, "wanted": "in", "why": "ready, generation 3"}
    assert found["router"]["members"][1]["state"] == "leaving"
    assert {k: found["router"][k] for k in ("kind", "url", "others", "error")} == {
        "kind": "ascend-proxy",
        "url": "http://10.0.0.1:8000",
        "others": ["http://10.9.9.9:1"],
        "error": "",
    }
    lines = [line.split() for line in text(found)]
    assert ["rank/d/0", "n1", "decode", "leaving", "out", "n1", "is", "starting"] in lines


def test_a_router_that_cannot_be_told() -> None:
    lines = text(told(router=RouterView("command", "http://10.0.0.1:8000", error="a command of your own")))
    assert "the router's members cannot be told: a command of your own" in lines


def test_how_far_a_drain_is() -> None:
    found = told(drain=Drain(990.0, 1290.0, out=True, unfinished=2, evidence="rank/p/0 has 2"))
    assert found["drain"]["left_s"] == 290.0
    assert (found["drain"]["unfinished"], found["drain"]["out_of_router"]) == (2, True)
    line = next(line for line in text(found) if "draining" in line)
    assert "out of the router, 2 requests to finish, stops in 290 s at the latest; rank/p/0 has 2" in line
    unknown = told(drain=Drain(990.0, 900.0))
    assert unknown["drain"]["left_s"] == 0.0
    line = next(line for line in text(unknown) if "draining" in line)
    assert "not yet out of the router, an unknown number of requests to finish" in line
