"""`yrnode collect` of a node whose daemon runs, is dead, or has a faulty file: no secret is ever in the archive."""

import asyncio
import json
import os
import signal
import stat
import tarfile
import time
from pathlib import Path

import pytest

from tests.api.fake import FakeNode, snapshot, view
from tests.cli.test_cli_daemon import process, started
from tests.support.etcd import free_port
from yrnode.api.server import Api
from yrnode.model.cause import Cause, Reason
from yrnode.model.state import Plane, State

# it makes way for everybody else on the machine
pytestmark = pytest.mark.timeout(300)

SECRETS = {
    "env": "hush-of-the-group",
    "args": "hush-of-the-flag",
    "etcd": "hush-of-etcd/%42",
    "proxy": "hush-of-the-proxy",
    "shell": "hush-of-the-shell",
    "log": "hush-only-in-a-log",
    "bearer": "hush-only-in-a-header",
    "event": "hush-only-in-an-event",
    "json": "hush-only-in-json",
}


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def file(tmp_path, port):
    """A node with secrets wherever one can be."""
    for name in ("state", "log", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "password").write_text(f"{SECRETS['etcd']}\n")
    (tmp_path / "log" / "rank-serve-0.log.1").write_text("older words\n")
    (tmp_path / "log" / "rank-serve-0.log").write_text(
        f"non-default args: {{'model': 'm', 'api_key': ['{SECRETS['args']}']}}\n"
        f"the group's own is {SECRETS['env']}, the shell's {SECRETS['shell']}\n"
        f"DB_PASSWORD={SECRETS['log']}\nAuthorization: Bearer {SECRETS['bearer']}\n"
        f"fetching http://user:{SECRETS['proxy']}@proxy:3128/x\n"
        f"etcd says {SECRETS['etcd']}\n"
        f'{{"env": {{"access_key": "{SECRETS["json"]}"}}}}\n'
        "a line that everybody may read\n"
    )
    (tmp_path / "state" / "wishes.json").write_text(json.dumps({"why": f"token={SECRETS['log']}"}))
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "cluster: lab\nnodes: {n0: {address: 127.0.0.1}}\n"
        "etcd: {nodes: [n0], auth: {user: root, password_file: ./password}, tls: {ca: ca, cert: c, key: k},\n"
        "  client_port: %d, peer_port: %d}\n"
        "datasystem: {port: %d, args: {etcd_cert: c, etcd_key: k}}\n"
        "groups:\n  serve:\n    ranks: {n0: 1}\n    port: 7000\n    model: m\n"
        f"    env: {{HF_TOKEN: {SECRETS['env']}, HTTP_PROXY: 'http://u:{SECRETS['proxy']}@p:3128'}}\n"
        f"    args: {{api-key: [{SECRETS['args']}]}}\n"
        f'api: {{listen: "127.0.0.1:{port}"}}\nstate_dir: ./state\nrun_dir: ./run\nlog_dir: ./log\n'
        % (free_port(), free_port(), free_port())
    )
    return path


def held(path):
    with tarfile.open(path) as tar:
        return {n.partition("/")[2]: tar.extractfile(n).read().decode() for n in tar.getnames()}


def no_secret(files):
    found = {
        name: what for name, text in files.items() for what, s in SECRETS.items() if s in text or repr(s) in text
    }
    assert found == {}


async def collect(file, to, *more):
    env = {**os.environ, "MY_ACCESS_TOKEN": SECRETS["shell"]}
    child = await started("collect", to, "--config", file, *more, env=env)
    out, err = await asyncio.wait_for(child.communicate(), 200)
    return child.returncode, out.decode(), err.decode()


async def test_of_a_dead_daemon(file, tmp_path):
    to = tmp_path / "a.tar.gz"
    code, out, err = await collect(file, to)
    assert (code, err) == (0, "")
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    files = held(to)
    no_secret({**files, "what it says": out})
    assert "a line that everybody may read" in files["log/rank-serve-0.log"]
    assert files["log/rank-serve-0.log"].startswith("older words\n")
    assert "HF_TOKEN: ***" in files["cluster.yaml"]
    assert json.loads(files["rendered.json"])["node"] == "n0"
    assert {"host/meminfo", "host/disks", "versions/packages", "left-over.json", "check.json"} <= set(files)
    assert json.loads(files["manifest.json"])["cluster_file_fault"] == ""
    missing = {f["name"]: f["missing"] for f in json.loads(files["manifest.json"])["files"] if f["missing"]}
    assert "does not run" in missing["status.json"]
    assert "etcd.tls.key" in missing["store.jsonl"]
    assert str(tmp_path / "k") in missing["store.jsonl"], "where a key is kept is no secret"
    assert out.startswith(f"{to}: ")
    assert "not in it:" in out
    assert "  status.json: yrnode does not run" in out
    # once more: nothing is overwritten
    before = to.read_bytes()
    code, _, err = await collect(file, to)
    assert (code, to.read_bytes() == before) == (2, True)
    assert "is there already" in err


async def test_of_one_that_runs(file, port, tmp_path):
    node = FakeNode(tmp_path / "state")
    why = Cause(Reason.EXITED, "killed", f"its last words: api_key={SECRETS['event']}")
    node.state = snapshot(view("worker", Plane.CACHE, State.FAILED, cause=why))
    node.events.emit("worker", "stop", why)
    api = Api(node, "127.0.0.1", port, tmp_path / "run" / "yrnode.sock")
    await api.start()
    (tmp_path / "out").mkdir()
    try:
        code, out, _ = await collect(file, tmp_path / "out", "-o", "json")
    finally:
        await api.close()
    assert code == 0
    said = json.loads(out)
    path = Path(said["path"])
    assert (path.parent, path.stat().st_size) == (tmp_path / "out", said["bytes"])
    assert path.name.startswith("yrnode-lab-n0-")
    files = held(path)
    no_secret({**files, "what it says": out})
    assert json.loads(files["status.json"])["components"]["worker"]["state"] == "failed"
    assert json.loads(files["events.jsonl"])["evidence"] == "its last words: api_key=***"
    assert {f["name"] for f in said["files"] if not f["missing"]} == set(files) - {"manifest.json"}


async def test_of_a_faulty_file(file, tmp_path):
    file.write_text(file.read_text() + "surprise: 1\n")
    code, _, err = await collect(file, tmp_path / "a.tar.gz")
    assert code == 0
    assert "surprise" in err
    files = held(tmp_path / "a.tar.gz")
    no_secret(files)
    assert "surprise" in json.loads(files["manifest.json"])["cluster_file_fault"]
    assert "a line that everybody may read" in files["log/rank-serve-0.log"]


async def test_of_a_script_that_fails(file, tmp_path):
    (tmp_path / "env.sh").write_text("return 3\n")
    file.write_text(file.read_text() + "env_from: [./env.sh]\n")
    code, _, _ = await collect(file, tmp_path / "a.tar.gz")
    assert code == 0
    files = held(tmp_path / "a.tar.gz")
    no_secret(files)
    manifest = json.loads(files["manifest.json"])
    assert "env.sh" in manifest["cluster_file_fault"]
    missing = {f["name"]: f["missing"] for f in manifest["files"]}
    assert "cluster_file_fault" in missing["rendered.json"]
    assert "etcd.tls.key" in missing["store.jsonl"], "where the store is, is known all the same"
    assert "a line that everybody may read" in files["log/rank-serve-0.log"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("x.tar",), "does not end in .tar.gz"),
        (("--log-size", "1KB"), "--log-size"),
        (("--log-size", "x"), "--log-size"),
    ],
)
async def test_usage(file, tmp_path, words, says):
    code, out, err = await process("collect", *words, "--config", file)
    assert (code, out) == (2, "")
    assert says in err


def writes(pid, folder):
    """Whether the process has a file below the folder open."""
    try:
        return any(
            os.readlink(f"/proc/{pid}/fd/{fd}").startswith(f"{folder}/") for fd in os.listdir(f"/proc/{pid}/fd")
        )
    except FileNotFoundError:
        return False


async def test_ctrl_c_leaves_nothing(file, tmp_path):
    (tmp_path / "out").mkdir()
    child = await started("collect", tmp_path / "out", "--config", file)
    end = time.monotonic() + 60
    while not writes(child.pid, tmp_path / "out"):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
    child.send_signal(signal.SIGINT)
    await asyncio.wait_for(child.communicate(), 60)
    # 130 for a shell either way: where it was just making a class, CPython ends itself by the signal
    assert child.returncode in (130, -signal.SIGINT)
    assert os.listdir(tmp_path / "out") == []
