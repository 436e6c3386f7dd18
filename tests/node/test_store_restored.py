"""A store that is put back from an older copy of its data while all serve, on the real parts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.etcd import encoded, post
from tests.support.keys import etcd_url, record_key, stored
from tests.support.node import cluster_text, yrnode
from tests.support.restore import copy_store, put_back

pytestmark = pytest.mark.long


def test_an_older_copy_stops_no_rank_and_the_record_is_put_back(tmp_path: Path) -> None:
    with yrnode(cluster_text()) as node:
        node.wait_ready()
        copy = tmp_path / "copy.db"
        copy_store(node, copy)
        for n in (2, 3):
            assert node.cli("restart", "serve", "--yes").returncode == 0
            node.wait(
                "the next life", lambda n=n: (s := node.status())["ready"] and s["groups"]["serve"]["generation"] == n
            )
        assert node.cli("stop", "serve", "--yes").returncode == 0
        assert node.cli("start", "serve", "--yes").returncode == 0
        node.wait("serving", lambda: node.status()["ready"])
        newest = stored(node, "serve")
        assert (newest["n"], newest["stage"]) == (node.status()["groups"]["serve"]["generation"], "go")
        before, began = node.pids(), time.monotonic()
        put_back(node, copy)
        node.wait(
            "the record put back",
            lambda: node.component("etcd")["state"] == "ready" and stored(node, "serve") == newest,
            40,
        )
        print(f"\nstore restored: the record is put back after {time.monotonic() - began:.1f} s")
        # the datasystem's part is older too: a worker that does not heal restarts with its group, and no rank does
        node.wait("ready", lambda: node.status()["ready"], 90)
        after = node.pids()
        assert [after[f"rank/serve/{i}"] for i in (0, 1)] == [before[f"rank/serve/{i}"] for i in (0, 1)]
        assert node.status()["groups"]["serve"]["generation"] == newest["n"]
        told = [e for e in node.events() if e["what"] == "put-back" and e["target"] == "serve"]
        assert len(told) == 1
        assert "life 1" in told[0]["evidence"]
        assert node.cli("verify").returncode == 0


@pytest.mark.parametrize("lost", ["record", "member"])
def test_a_key_that_somebody_deletes_is_put_again_and_nothing_else_happens(lost: str) -> None:
    with yrnode(cluster_text(ranks=1)) as node:
        node.wait_ready()
        before, record = node.pids(), stored(node, "serve")
        key = record_key(node, "serve")
        if lost == "member":
            key = key.removesuffix("record") + "members/n0"
        post(etcd_url(node), "kv/deleterange", {"key": encoded(key)})

        def there() -> bool:
            return bool(post(etcd_url(node), "kv/range", {"key": encoded(key)}).get("kvs"))

        node.wait("the key again", there, 20)
        assert stored(node, "serve") == record
        assert node.pids() == before
        assert node.status()["groups"]["serve"]["phases"] == {"n0": "ready"}
