"""A whole node under the verbs that only look: usual times, reload, collect. Nothing of it restarts."""

from __future__ import annotations

import json
import tarfile

import pytest

from tests.support.node import YrNode, cluster_text, yrnode

pytestmark = pytest.mark.long


def usual(node: YrNode) -> dict[str, float]:
    status = node.status()
    found = {n: c.get("usual_start_s") for n, c in status["components"].items()}
    found["group"] = status["groups"].get("serve", {}).get("usual_start_s")
    return found if found and None not in found.values() else {}


def test_of_a_node_and_of_its_next_daemon() -> None:
    with yrnode(cluster_text(ranks=1, extra_args=", api-key: hush-hush-1")) as node:
        node.wait_ready()
        first = node.wait("usual times", lambda: usual(node), 30)
        assert 0 < first["rank/serve/0"] <= first["group"] + 1 < 90
        pids = node.pids()
        assert all(c["progress"] is None for c in node.status()["components"].values())

        reach = node.cli("restart", "serve", "--dry-run").stdout.splitlines()
        assert reach[1] == "  in all: 1 rank of serve, on n0"
        assert reach[2].startswith("  until it is ready: usually ")

        # what is learned and what runs outlives the daemon
        node.kill()
        node.start()
        node.wait_ready()
        assert node.wait("usual times", lambda: usual(node), 30) == first, "an adopted one is no start"

        good = node.config.read_text()
        assert "nothing differs" in node.cli("reload").stdout
        node.config.write_text(good.replace("hush-hush-1", "hush-hush-2"))
        said = node.cli("reload", "-o", "json")
        assert (said.returncode, "hush" in said.stdout) == (0, False)
        found = json.loads(said.stdout)
        assert found["changed"] == [{"key": "groups.serve.args.api-key", "old": "***", "new": "***"}]
        assert (found["components"], found["groups"]) == ({"n0": ["rank/serve/0"]}, ["serve"])
        node.config.write_text(good + "surprise: 1\n")
        assert node.cli("reload").returncode == 2
        node.config.write_text(good)
        assert "nothing differs" in node.cli("reload").stdout

        done = node.cli("collect", str(node.dir / "a.tar.gz"), "-o", "json", timeout=110)
        assert done.returncode == 0, done.stderr
        with tarfile.open(node.dir / "a.tar.gz") as tar:
            files = {n.partition("/")[2]: tar.extractfile(n).read().decode() for n in tar.getnames()}  # type: ignore[union-attr]
        assert not [name for name, text in files.items() if "hush-hush" in text]
        assert json.loads(files["status.json"])["ready"] is True
        keys = [json.loads(line)["key"] for line in files["store.jsonl"].splitlines()]
        assert any(key.endswith("/groups/serve/record") for key in keys)
        assert "Max open files" in files["host/limits"]
        assert {"log/rank-serve-0.log", "log/etcd.log", "state/serve.json", "run/etcd.json", "events.jsonl"} <= {
            name.replace("state/groups/", "state/") for name in files
        }
        assert node.pids() == pids, "nothing was restarted"
