"""Starts engines, the stand-in or a real vLLM, and looks at them from outside as a supervisor does."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

PR_SET_CHILD_SUBREAPER = 36
COMMON = shlex.split("--max-model-len 2048 --max-num-seqs 4 --max-num-batched-tokens 512 --served-model-name tiny")
LAB = os.environ.get("YRNODE_VLLM_LAB", "")
LAB = LAB and os.path.abspath(LAB)


def wait_for(condition, seconds, what="the condition"):
    """The first true value of `condition()`; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"{what} did not come true in {seconds} s")
        time.sleep(0.01)
    return value


def free_port():
    """A port that is free now, below the ephemeral range."""
    # tests that run side by side draw from parts of the range
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 4
    while True:
        port = random.randint(20000 + 3000 * worker, 20000 + 3000 * worker + 2999)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def stat(pid):
    """(ppid, pgid, sid, state) from /proc, or None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else (int(fields[1]), int(fields[2]), int(fields[3]), fields[0])


class Server:
    """One `vllm serve` in its own session."""

    def __init__(self, lab, flags, env, unset, model, cwd, port, host):
        self.lab, self.port, self.host = lab, port, host
        self.log = lab.dir / f"engine-{port}.log"
        self.rpc = Path(tempfile.mkdtemp(prefix="yrr", dir=lab.dir))
        argv, base = lab.command(model)
        argv = [*argv, "--host", host, "--port", str(port), *flags]
        whole = {**base, "VLLM_RPC_BASE_PATH": str(self.rpc), "SPT_NOENV": "1", **env}
        with self.log.open("ab") as out:
            self.proc = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=cwd or lab.dir,
                start_new_session=True,
                env={key: value for key, value in whole.items() if key not in unset},
            )
        self.pid = self.proc.pid
        self.shm = set()

    # processes

    def members(self):
        """pid -> comm of all living processes of the session, zombies reaped where they are ours."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{entry}/stat").read_text(errors="replace")
                comm, fields = text[text.index("(") + 1 : text.rindex(")")], text.rpartition(")")[2].split()
                if int(fields[3]) != self.pid:
                    continue
                if fields[0] not in "ZX":
                    found[int(entry)] = comm
                elif int(entry) != self.pid:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(int(entry), os.WNOHANG)
        return found

    def one(self, comm):
        """The pid of the only member whose comm starts so."""
        pids = [pid for pid, name in self.members().items() if name.startswith(comm)]
        assert len(pids) == 1, (comm, self.members())
        return pids[0]

    def engine(self):
        """The EngineCore. A Worker that has no title of its own yet is its child, so its parent tells them apart."""
        named = [p for p, comm in self.members().items() if comm == "VLLM::EngineCor"]
        pids = [p for p in named if stat(p)[0] not in named]
        assert len(pids) == 1, self.members()
        return pids[0]

    def worker(self):
        return self.one("VLLM::Worker")

    def mapped(self):
        """Files in /dev/shm that members have mapped."""
        found = set()
        for pid in self.members():
            with contextlib.suppress(OSError):
                found |= set(re.findall(r"/dev/shm/(?:psm_|sem\.mp-)\S+", Path(f"/proc/{pid}/maps").read_text()))
        return found

    def leftovers(self):
        return {path for path in self.shm if os.path.exists(path)}

    def gone(self, seconds):
        """Wait until the session is empty; the leader's exit code."""
        code = self.proc.wait(seconds)
        wait_for(lambda: not self.members(), seconds, "an empty session")
        return code

    def text(self):
        return self.log.read_text(errors="replace")

    # HTTP

    def listening(self):
        with socket.socket() as s:
            s.settimeout(2)
            return s.connect_ex((self.host, self.port)) == 0

    def ready(self):
        """Wait until /health answers 200."""

        def healthy():
            assert self.proc.poll() is None, self.text()[-4000:]
            with contextlib.suppress(OSError):
                return self.get("/health")[0] == 200

        wait_for(healthy, self.lab.patience, "readiness")
        self.shm = self.mapped()
        return self

    def request(self, method, path, body=None, timeout=10.0, headers=()):
        """(status, body text); OSError or http.client.HTTPException when there is no answer."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **dict(headers)})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def get(self, path, timeout=5.0, **kw):
        return self.request("GET", path, timeout=timeout, **kw)

    def complete(self, prompt="hello", timeout=10.0, headers=(), **body):
        body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, **body}
        status, text = self.request("POST", "/v1/completions", body, timeout, headers)
        return status, json.loads(text) if text.startswith("{") else text

    def serves(self):
        status, answer = self.complete(unique())
        return status == 200 and answer["usage"]["completion_tokens"] == 1

    def fails(self):
        """Whether a completion is refused, or answered with 500."""
        try:
            return self.complete(unique())[0] == 500
        except (OSError, http.client.HTTPException):
            return True

    def hangs(self, seconds=0.5):
        """Whether a completion gets no answer in `seconds`."""
        try:
            self.complete(unique(), timeout=seconds)
        except TimeoutError:
            return True
        return False

    def in_flight(self, timeout=60, **body):
        """A long completion that the server counts, in the background."""
        body = {"max_tokens": self.lab.long, "ignore_eos": True, **body}
        call = Background(lambda: self.complete(unique(), timeout=timeout, **body))
        wait_for(lambda: call.done() or self.load() == 1, 10, "a load of 1")
        assert not call.done(), call.result()
        return call

    def load(self):
        return json.loads(self.get("/load")[1])["server_load"]

    def metric(self, name, *, page=None, **labels):
        """Sum of the samples of a series that carry `labels`, on a page that was read before or a new one."""
        total, found = 0.0, False
        for line in (page or self.get("/metrics")[1]).splitlines():
            match = re.match(r"([^\s{#]+)(?:\{(.*)\})? (\S+)$", line)
            if match and match[1] == name and all(f'{k}="{v}"' in (match[2] or "") for k, v in labels.items()):
                total, found = total + float(match[3]), True
        assert found, f"no series {name} {labels}"
        return total


class Background:
    """A call in a thread; `result()` gives its value or raises what it raised."""

    def __init__(self, call):
        self._value = self._error = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call):
        try:
            self._value = call()
        except Exception as error:
            self._error = error

    def done(self):
        return not self._thread.is_alive()

    def result(self, seconds=30.0):
        self._thread.join(seconds)
        assert self.done(), "no result in time"
        if self._error:
            raise self._error
        return self._value


class Lab:
    """All engines of one test; whatever is left at its end is killed and removed."""

    def __init__(self, kind, directory):
        self.kind, self.dir = kind, directory
        self.real = kind == "vllm"
        self.patience = 300 if self.real else 15  # seconds to ready
        self.grace = 30 if self.real else 5  # seconds for an end
        self.long = 1800 if self.real else 300  # tokens of a request that takes a while
        self.servers = []

    def command(self, model):
        """argv and environment of `vllm serve` up to the model's flags."""
        plain = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")} | {"PYTHONHASHSEED": "0"}
        if not self.real:
            return [sys.executable, "-m", "yrnode.demo.engine", "serve", model, *COMMON], plain
        script = f". {shlex.quote(LAB)}/env.sh && env -0"
        dump = subprocess.run(["bash", "-c", script], env=plain, capture_output=True, check=True).stdout
        env = dict(item.split("=", 1) for item in dump.decode().split("\0") if "=" in item)
        env["TMPDIR"] = str(self.dir)  # a killed one leaves files there
        dense = f"{env['MODELS']}/tiny-{'moe' if model == 'moe' else 'dense'}" if model in ("dense", "moe") else model
        return [f"{LAB}/venv/bin/vllm", "serve", dense, *env["COMMON"].split(), *COMMON], env

    def start(self, *flags, env=None, unset=(), model="dense", cwd=None, port=None, host="127.0.0.1", knobs=()):
        """Start an engine; `knobs` are flags for the stand-in alone."""
        if not self.real:
            flags = (*flags, *knobs)
        server = Server(self, [str(f) for f in flags], env or {}, unset, model, cwd, port or free_port(), host)
        self.servers.append(server)
        return server

    def group(self, size=2, flags=(), order=None, rpc_port=None, knobs=()):
        """Start a data-parallel group of `size` external ranks; the list is in rank order."""
        rpc_port = rpc_port or free_port()
        servers = {}
        for rank in order or range(size):
            servers[rank] = self.start(
                *("--data-parallel-size", size, "--data-parallel-rank", rank, "--data-parallel-address", "127.0.0.1"),
                *("--data-parallel-rpc-port", rpc_port, "--enable-server-load-tracking", *flags),
                model="moe",
                knobs=knobs,
            )
        return [servers[rank] for rank in sorted(servers)]

    def close(self):
        for server in self.servers:
            print(f"---- {server.log.name}\n{server.text()[-3000:]}")  # shown when the test fails
            for pid in server.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            server.gone(20)
            for path in server.leftovers():
                os.unlink(path)


def unique(tokens=8):
    """A prompt that no cache has seen."""
    return [random.randint(3, 500) for _ in range(tokens)]


@pytest.fixture(scope="module", autouse=True)
def _subreaper():
    """Orphans come to us, so that none stays as a zombie."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@contextlib.contextmanager
def engines(kind):
    if kind == "vllm" and not LAB:
        pytest.skip("YRNODE_VLLM_LAB names no vLLM installation")
    with tempfile.TemporaryDirectory(prefix="yre") as directory:
        lab = Lab(kind, Path(directory))
        try:
            yield lab
        finally:
            lab.close()


@pytest.fixture
def lab(request):
    """Engines of one test, of the kind that the test is parametrised with (the stand-in by default)."""
    with engines(getattr(request, "param", "standin")) as lab:
        yield lab


@pytest.fixture(scope="module")
def rank(request, _subreaper):
    """One ready engine with load tracking, shared by the tests that do it no harm."""
    with engines(getattr(request, "param", "standin")) as lab:
        flags = ["--enable-server-load-tracking", "--block-size", 32, "--enable-prefix-caching"]
        yield lab.start(*flags, env={"MARK": "of-this-rank"}).ready()


@pytest.fixture(scope="session")
def tools():
    """Helpers for test modules, which import nothing from here."""

    class Tools:
        pass

    for helper in (wait_for, free_port, stat, unique, Background):
        setattr(Tools, helper.__name__, staticmethod(helper))
    return Tools
