"""`yrnode reload`: what differs in the file, and what that means; nothing is taken and nothing is restarted."""

import json
import os

import pytest

from tests.api.fake import FakeNode
from tests.cli.test_cli_daemon import process, yrnode
from tests.support.etcd import free_port
from yrnode.api.reload import Loaded, Reload, Runs
from yrnode.api.server import Api
from yrnode.cli.daemon import tell_reload
from yrnode.cli.reload import text
from yrnode.components import node as components
from yrnode.config.load import load

TEXT = """cluster: lab
nodes: {{n0: {{address: 192.0.2.9}}, n1: {{address: 192.0.2.1}}}}
etcd: {{nodes: [n0]}}
datasystem: {{shared_memory: 512MB}}
env: {{HF_TOKEN: hush-hush-1}}
groups:
  prefill: {{ranks: {{n0: 1}}, port: 7000, model: m, args: {{max-model-len: 4096}}}}
  decode: {{ranks: {{n0: 1, n1: 2}}, port: 7100, model: m, devices: {{n0: [1]}}}}
api: {{listen: "127.0.0.1:{port}"}}
state_dir: ./state
run_dir: ./run
log_dir: ./log
"""

SYSTEMD = Runs("systemd", 7, "yrnode.service")


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def file(tmp_path, port):
    path = tmp_path / "cluster.yaml"
    path.write_text(TEXT.format(port=port))
    return path


def loaded(file):
    host = components.host_of(load(file), "n0", os.environ)
    return Loaded(str(file), host, components.specs(host))


@pytest.fixture
def change(file):
    """What a change of the file's text means to a daemon that has the text before."""
    reload = Reload(loaded(file), lambda: loaded(file), SYSTEMD)

    def changed(*pairs):
        whole = file.read_text()
        for old, new in pairs:
            assert whole.count(old) == 1, old
            whole = whole.replace(old, new)
        file.write_text(whole)
        return reload()

    return changed


def told(found):
    return "\n".join(text(found))


def test_nothing_differs(change):
    found = change()
    assert (found["changed"], found["components"], found["groups"], found["stranded"]) == ([], {}, [], [])
    assert told(found).endswith("nothing differs from what yrnode has")
    assert change(("cluster: lab", "# a remark\ncluster: lab"), ("n0]}", "n0], client_port: 2379}"))["changed"] == []


def test_a_flag_of_one_group(change):
    found = change(("max-model-len: 4096", "max-model-len: 8192, enforce-eager: true"))
    assert found["changed"] == [
        {"key": "groups.prefill.args.max-model-len", "old": "4096", "new": "8192"},
        {"key": "groups.prefill.args.enforce-eager", "old": None, "new": True},
    ]
    assert found["components"] == {"n0": ["rank/prefill/0"]}
    assert found["groups"] == ["prefill"]
    lines = told(found)
    assert '  groups.prefill.args.max-model-len: "4096" -> "8192"' in lines
    assert "  groups.prefill.args.enforce-eager: not there -> true" in lines
    assert "groups that would restart: prefill" in lines
    assert "nothing is restarted" in lines
    assert "systemctl restart yrnode" in lines
    assert "  yrnode restart prefill" in lines
    assert "restart decode" not in lines


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        (SYSTEMD, "there systemctl restart yrnode, which leaves"),
        (Runs("systemd", 7, "llm.service", user=True), "there systemctl --user restart llm, which leaves"),
        (Runs("init", 1), "there kill -USR1 1, which leaves"),
        (Runs("", 77), "there kill -USR1 77 and yrnode run --config {file}, which leaves"),
    ],
)
def test_how_another_daemon_takes_it_is_said_by_how_this_one_runs(file, runs, says):
    reload = Reload(loaded(file), lambda: loaded(file), runs)
    file.write_text(file.read_text().replace("512MB", "1024MB"))
    lines = told(json.loads(json.dumps(reload())))
    assert says.format(file=file) in lines
    in_container = runs.by == "init"
    assert ("systemctl" in lines) is (in_container or runs.by == "systemd")
    assert ("systemctl reload yrnode-container, or docker kill -s USR1 NAME" in lines) is in_container
    assert ("systemctl restart" in lines) is (runs.by == "systemd" and not runs.user)


def test_a_daemon_of_before_says_nothing_of_how_it_runs(change):
    found = change(("512MB", "1024MB"))
    del found["runs"]
    assert "there systemctl restart yrnode, which leaves" in told(found)


def test_what_all_ranks_share_touches_all_groups_on_all_nodes(change):
    found = change(("hush-hush-1", "hush-hush-2"))
    assert found["changed"] == [{"key": "env.HF_TOKEN", "old": "***", "new": "***"}]
    assert found["components"] == {
        "n0": ["rank/prefill/0", "rank/decode/0"],
        "n1": ["rank/decode/1", "rank/decode/2"],
    }
    assert found["groups"] == ["prefill", "decode"]
    assert "hush" not in json.dumps(found)


def test_another_nodes_part_touches_its_group_alone(change):
    found = change(("{address: 192.0.2.1}", "{address: 192.0.2.1, env: {A: b}}"))
    assert found["components"] == {"n1": ["rank/decode/1", "rank/decode/2"]}
    assert found["groups"] == ["decode"]
    assert "other processes on n1: rank/decode/1, rank/decode/2" in told(found)


def test_a_component_of_the_node_itself(change):
    found = change(("512MB", "1024MB"))
    assert found["components"] == {"n0": ["worker"], "n1": ["worker"]}
    assert found["groups"] == []
    assert "  yrnode restart worker" in told(found)


def test_checks_alone_touch_no_process(change):
    found = change(("cluster: lab", "checks: {rank.canary: {period: 9s}}\ncluster: lab"))
    assert [d["key"] for d in found["changed"]] == ["checks.rank.canary"]
    assert (found["components"], found["groups"]) == ({}, [])
    assert "no process would be another one" in told(found)


def test_a_group_that_comes_and_one_that_goes(change):
    found = change(("  decode:", "  other:"))
    assert found["groups"] == ["other", "decode"]
    assert found["components"]["n0"] == ["rank/decode/0", "rank/other/0"]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("./state", "./elsewhere", "state_dir"),
        ("./run", "./elsewhere", "run_dir"),
        ("cluster: lab", "cluster: x", "cluster"),
    ],
)
def test_what_a_node_that_runs_cannot_follow(change, old, new, key):
    found = change((old, new))
    assert found["stranded"] == [key]
    assert f"{key} cannot change while anything runs" in told(found)
    assert "systemctl restart" not in told(found)


async def test_a_hangup_logs_the_same_and_survives_whatever_the_file_is(file, caplog):
    caplog.set_level("INFO", "yrnode.run")
    reload = Reload(loaded(file), lambda: loaded(file), SYSTEMD)

    async def logged():
        caplog.clear()
        await tell_reload(reload)
        return [(r.levelname, r.getMessage()) for r in caplog.records]

    assert await logged() == [("INFO", f"reload: {file}: nothing differs from what yrnode has")]
    good = file.read_text()
    file.write_text(good.replace("max-model-len: 4096", "max-model-len: 8192"))
    lines = await logged()
    assert ("INFO", "reload:   yrnode restart prefill") in lines
    assert {level for level, _ in lines} == {"INFO"}
    file.write_text(good + "surprise: 1\nmore: 2\n")
    lines = await logged()
    assert [level for level, _ in lines] == ["WARNING"] * 2
    assert "surprise" in lines[0][1]
    file.unlink()
    assert [level for level, _ in await logged()] == ["WARNING"]

    def burst():
        raise RuntimeError("a fault of ours")

    reload = burst
    assert [level for level, _ in await logged()] == ["ERROR"]


@pytest.fixture
async def api(file, port, tmp_path):
    node = FakeNode(tmp_path)
    server = Api(
        node, "127.0.0.1", port, tmp_path / "run" / "yrnode.sock", Reload(loaded(file), lambda: loaded(file), SYSTEMD)
    )
    await server.start()
    yield node
    await server.close()


async def test_the_verb(file, api):
    which = ("--config", file, "--node", "n0")
    code, out, err = await yrnode("reload", *which)
    assert (code, err) == (0, "")
    assert "nothing differs" in out
    file.write_text(file.read_text().replace("512MB", "1024MB"))
    code, out, _ = await yrnode("reload", "-o", "json", *which)
    assert code == 0
    assert json.loads(out)["components"] == {"n0": ["worker"], "n1": ["worker"]}
    assert api.asked == [], "nobody was asked to do anything"


async def test_a_file_that_is_no_good_is_one_line_and_2(file, api):
    good = file.read_text()
    for bad, words in (
        (good.replace("512MB", "many"), "datasystem.shared_memory"),
        (good.replace("cluster: lab", "cluster: [lab"), "cluster.yaml"),
        (good + "surprise: 1\n", "surprise"),
    ):
        file.write_text(bad)
        code, out, err = await process("reload", "--config", file, "--node", "n0")
        assert (code, out) == (2, ""), bad
        assert words in err
        assert len(err.splitlines()) == 1
    file.write_text(good)
    assert (await yrnode("reload", "--config", file, "--node", "n0"))[1].endswith(
        "nothing differs from what yrnode has\n"
    )
