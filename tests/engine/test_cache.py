"""The stand-in's external cache: a real datasystem worker with a real etcd."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

CONFIG = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "connectors": [
            {"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_producer"},
            {
                "kv_connector": "AscendStoreConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"backend": "yuanrong", "lookup_rpc_port": "0"},
            },
        ]
    },
}
FLAGS = ["--kv-transfer-config", json.dumps(CONFIG), "--standin-load-time", 0]
NAMES = ["prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries", "external_prefix_cache_hits"]
DSCLI = Path(sys.executable).with_name("dscli")


class Store:
    """etcd and one datasystem worker in a directory of their own."""

    def __init__(self, directory, tools):
        self.dir, self.tools = directory, tools
        self.client, self.peer, self.port = tools.free_port(), tools.free_port(), tools.free_port()
        self.address = f"127.0.0.1:{self.port}"
        etcd = Path(sys.executable).with_name("etcd")
        urls = [f"http://127.0.0.1:{port}" for port in (self.client, self.peer)]
        argv = [
            str(etcd if etcd.exists() else shutil.which("etcd")),
            "--name",
            "e",
            "--data-dir",
            f"{directory}/etcd",
        ]
        argv += ["--listen-client-urls", urls[0], "--advertise-client-urls", urls[0], "--listen-peer-urls", urls[1]]
        argv += ["--initial-advertise-peer-urls", urls[1], "--initial-cluster", f"e={urls[1]}"]
        with open(f"{directory}/etcd.log", "wb") as log:
            self.etcd = subprocess.Popen(argv, stdout=log, stderr=log)
        tools.wait_for(lambda: self._open(self.client), 20, "etcd")
        self.start()

    @staticmethod
    def _open(port):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def start(self):
        argv = [DSCLI, "start", "-t", "60", "-d", self.dir, "-w", "--worker_address", self.address]
        argv += ["--etcd_address", f"127.0.0.1:{self.client}", "--shared_memory_size_mb", "128"]
        argv += ["--node_timeout_s", "5", "--node_dead_timeout_s", "10", "--max_log_size", "10"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self.pid = int(done.stdout.rpartition("PID:")[2])

    def close(self):
        for pid in (self.pid, self.etcd.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.etcd.wait(10)
        with contextlib.suppress(ChildProcessError):
            self.tools.wait_for(lambda: os.waitpid(self.pid, os.WNOHANG)[0], 10)


@pytest.fixture(scope="module")
def store(tools, tmp_path_factory, _subreaper):
    if not DSCLI.exists():
        pytest.skip("no dscli beside this Python (no datasystem wheel for it)")
    with tempfile.TemporaryDirectory(prefix="yrs") as directory:
        store = Store(directory, tools)
        try:
            yield store
        finally:
            store.close()


@pytest.fixture
def env(store, tmp_path):
    """Environment of a rank on the store's worker, with short timeouts."""
    config = tmp_path / "yr.json"
    config.write_text(json.dumps({"worker_addr": store.address, "connect_timeout_ms": 1000}))
    return {"YR_CONFIG_PATH": str(config), "DATASYSTEM_CLIENT_LOG_DIR": str(tmp_path / "client")}


def counts(server, prompt):
    """What one completion adds to the four cache counters."""
    before = [server.metric(f"vllm:{name}_total") for name in NAMES]
    assert server.complete(prompt)[0] == 200
    return [int(server.metric(f"vllm:{name}_total") - b) for name, b in zip(NAMES, before, strict=True)]


def test_another_rank_finds_what_the_first_has_put(lab, tools, store, env, tmp_path):
    prompt = tools.unique(100)
    first = lab.start(*FLAGS, "--tensor-parallel-size", 2, env=env, cwd="/").ready()
    assert counts(first, prompt) == [100, 0, 100, 0]
    assert counts(first, prompt) == [100, 96, 4, 0]
    assert (tmp_path / "client").is_dir()
    fresh = {k: v for k, v in env.items() if k != "YR_CONFIG_PATH"} | {"DS_WORKER_ADDR": store.address}
    second = lab.start(*FLAGS, "--tensor-parallel-size", 2, env=fresh).ready()

    def arrived():  # the put is in the background
        tail = tools.unique(20)
        return counts(second, prompt[:96] + tail)[3] == 96 or not second.complete(tail)

    tools.wait_for(arrived, 5)
    assert counts(second, prompt) == [100, 96, 4, 0]  # now local
    other = lab.start(*FLAGS, "--tensor-parallel-size", 2, env=env, model="another").ready()
    assert counts(other, prompt) == [100, 0, 100, 0]


def test_only_with_a_connector(lab, tools, env):
    server = lab.start("--standin-load-time", 0, env=env).ready()
    assert counts(server, tools.unique(50)) == [50, 0, 0, 0]


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"])
def test_without_a_datasystem_worker_it_does_not_start(lab, env, address, tmp_path):
    env.pop("YR_CONFIG_PATH")
    if address:
        config = tmp_path / "nobody.json"
        config.write_text(json.dumps({"worker_addr": address, "connect_timeout_ms": 500}))
        env["YR_CONFIG_PATH"] = str(config)
    server = lab.start(*FLAGS, env=env)
    assert server.gone(15) == 1
    assert "(Worker pid=" in server.text()
    assert "ERROR" in server.text()
    assert "Engine core initialization failed. See root cause above. Failed core proc(s): {}" in server.text()


def test_a_frozen_or_dead_datasystem_worker_costs_hits_and_no_rank(lab, tools, store, env):
    server = lab.start(*FLAGS, env=env).ready()
    os.kill(store.pid, signal.SIGSTOP)
    try:
        call = tools.Background(lambda: server.complete(tools.unique(50), timeout=60))
        tools.wait_for(lambda: "Failed to check keys." in server.text(), 30)
        assert call.result(60)[0] == 200
    finally:
        os.kill(store.pid, signal.SIGCONT)
    os.kill(store.pid, signal.SIGKILL)
    tools.wait_for(lambda: os.waitpid(store.pid, os.WNOHANG)[0], 10)
    assert counts(server, tools.unique(50))[2:] == [50, 0]
    tools.wait_for(lambda: "Failed to put" in server.text(), 30)
    assert server.get("/health")[0] == 200
    store.start()

    def hits_again():  # the client reconnects on its own
        prompt = tools.unique(50)
        server.complete(prompt)
        fresh = lab.start(*FLAGS, env=env).ready()
        found = counts(fresh, prompt)[3] == 48
        fresh.proc.terminate()
        fresh.gone(5)
        return found

    tools.wait_for(hits_again, 30)


def test_a_dead_link_holds_only_what_it_is_to_load(lab, tools, store, env):
    prompt = tools.unique(100)
    assert lab.start(*FLAGS, env=env).ready().complete(prompt)[0] == 200
    server = lab.start(*FLAGS, env=env).ready()
    assert counts(server, tools.unique(100))[3] == 0
    os.kill(server.worker(), signal.SIGUSR2)
    call = tools.Background(lambda: server.complete(prompt, timeout=4))
    tools.wait_for(lambda: server.metric("vllm:num_requests_waiting") == 1, 5)
    assert server.metric("vllm:num_requests_running") == 0
    assert server.metric("vllm:external_prefix_cache_hits_total") == 96, "counted when it was found"
    for words in (5, 100):  # too short for a hit, and not there
        assert server.complete(tools.unique(words))[0] == 200
    with pytest.raises(OSError, match="timed out"):
        call.result(10)
    tools.wait_for(lambda: server.metric("vllm:num_requests_waiting") == 0, 5)
    os.kill(server.worker(), signal.SIGUSR2)
    assert server.complete(prompt)[0] == 200
