"""A node with a router in front of a prefill rank and a decode rank, both stand-ins."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster import cluster_of, free_everywhere
from tests.support.node import YrNode

STANDIN = Path(__file__).with_name("ascend_proxy.py")
PROXY = os.environ.get("YRNODE_ASCEND_PROXY", str(STANDIN))
"""The real one may be put here, and into YRNODE_ASCEND_PYTHON an interpreter that has what it imports."""
PYTHON = os.environ.get("YRNODE_ASCEND_PYTHON", "python")
P, D = "rank/p/0", "rank/d/0"
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def two_groups(kind: str, router_args: str, args: str = "") -> str:
    """One node with a prefill rank, a decode rank and a router; `{metrics}` in its args is a free port."""
    first = free_everywhere(1, 9)
    rank = "kv_connector: {ascend_store: {}}, model: demo, ranks: {n0: 1}, args: {served-model-name: demo" + args
    groups = f"\n  p: {{{rank}}}, port: {first + 5}}}\n  d: {{{rank}}}, port: {first + 6}, devices: {{n0: [1]}}}}"
    router = f"router: {{node: n0, {kind}, port: {first + 7}, prefill: p, decode: d"
    router += f", args: {{{router_args.replace('{metrics}', str(first + 8))}}}}}"
    return cluster_of(1, groups=groups, more=router, first=first).replace("bin: {", f"bin: {{python: {PYTHON}, ")


def split(args: str = "", router_args: str = "") -> str:
    """One node with a prefill rank, a decode rank and the proxy."""
    return two_groups(f"script: {PROXY}", router_args, args)


class Node(YrNode):
    @property
    def router(self) -> str:
        return str((self.status().get("router") or {}).get("url", ""))

    def members(self) -> dict[str, str]:
        """By rank: in, out or leaving, as the daemon shows it."""
        return {m["rank"]: m["state"] for m in (self.status().get("router") or {}).get("members", ())}

    def listed(self) -> set[str]:
        """The servers that the proxy itself lists, by port: p or d."""
        data = json.dumps({"type": "prefill", "instances": []}).encode()
        headers = {"Content-Type": "application/json"}
        with _OPEN(urllib.request.Request(f"{self.router}/instances/add", data, headers), timeout=5) as answer:
            found = json.load(answer)
        return {*found["current_prefill_instances"], *found["current_decode_instances"]}

    def url(self, rank: str) -> str:
        members = self.status()["router"]["members"]
        return next(m["url"].removeprefix("http://") for m in members if m["rank"] == rank)

    def marks(self, *what: str, since: int = 0) -> list[tuple[str, str]]:
        """(event, target) of these events, in order."""
        return [(e["what"], e["target"]) for e in self.events()[since:] if e["what"] in what]

    def wait_members(self, **expected: str) -> None:
        wanted = {f"rank/{group}/0": state for group, state in expected.items()}
        self.wait(f"members {expected}", lambda: self.members() == wanted, 30)


@contextmanager
def running(text: str) -> Iterator[Node]:
    """The node, ready."""
    found = Node(text)
    try:
        found.start()
        found.wait_ready()
        yield found
    finally:
        found.close()
