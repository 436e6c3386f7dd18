"""Other supervisors with the same children, and the probe that the deployment guides use."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import sleepers
from bench.supervised import Supervised, directory
from tests.support.etcd import free_port

BIN = Path(os.environ.get("YRNODE_BENCH_PEERS") or "/nonexistent")
MISSING = "not installed: make bench does that"
SEEN = {"supervisord": r"exited: (\S+) \(", "circus": r"reaping process \d+ \[(\S+)\]"}
"""What each says when it has seen a death."""
STALE_S = 30
"""After which the guides take a worker for dead, by its liveness file."""
SUCCESS = "liveness check success"


PACKAGES = {"supervisord": "supervisor", "circus": "circus"}


def version(name: str) -> str | None:
    """Of the package that it is in; None where it is not installed."""
    if not there(name):
        return None
    look = f"from importlib.metadata import version; print(version({PACKAGES[name]!r}))"
    done = subprocess.run([BIN / "python", "-c", look], capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() or None


def there(name: str) -> bool:
    return (BIN / {"supervisord": "supervisord", "circus": "circusd"}[name]).exists()


def supervisord(where: Path, names: Sequence[str], birth: Path, port: int) -> list[str]:
    """Its command line, with its file in `where`; it answers XML-RPC on `port`."""
    programs = "".join(
        f"[program:{name}]\ncommand=/bin/sh {where}/child.sh {name}\nautorestart=true\n"
        f"startretries=1000\nenvironment=BIRTHS={birth}\nstdout_logfile=NONE\nstderr_logfile=NONE\n"
        for name in names
    )
    (where / "child.sh").write_text(sleepers.SCRIPT.replace("$0", "$1") + "\n")
    (where / "supervisord.conf").write_text(
        f"[supervisord]\nnodaemon=true\nlogfile=/dev/stdout\nlogfile_maxbytes=0\n"
        f"pidfile={where}/supervisord.pid\nchildlogdir={where}\n"
        f"[inet_http_server]\nport=127.0.0.1:{port}\n"
        "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface\n"
        + programs
    )
    return [str(BIN / "python"), "-u", str(BIN / "supervisord"), "-n", "-c", str(where / "supervisord.conf")]


def circus(where: Path, names: Sequence[str], birth: Path, ports: Sequence[int], level: str) -> list[str]:
    """As above. `level` of what it logs: only at debug does it say that it has seen a death."""
    watchers = "".join(
        f"[watcher:{name}]\ncmd=/bin/sh {where}/child.sh {name}\nnumprocesses=1\nmax_retry=-1\n"
        f"[env:{name}]\nBIRTHS={birth}\nPATH={os.defpath}\n"
        for name in names
    )
    (where / "child.sh").write_text(sleepers.SCRIPT.replace("$0", "$1") + "\n")
    ends = "".join(
        f"{what}=tcp://127.0.0.1:{port}\n" for what, port in zip(("endpoint", "pubsub_endpoint"), ports, strict=True)
    )
    (where / "circus.ini").write_text(f"[circus]\n{ends}{watchers}")
    out = ["--log-level", level, "--log-output", "-"]
    return [str(BIN / "python"), "-u", str(BIN / "circusd"), *out, str(where / "circus.ini")]


_CALL = "<?xml version='1.0'?><methodCall><methodName>{}</methodName><params></params></methodCall>"


def rpc(port: int, method: str) -> bool:
    """Ask a supervisord; whether it answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/RPC2", _CALL.format(method), {"Content-Type": "text/xml"})
        answer = connection.getresponse()
        return answer.status == 200 and b"fault" not in answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def guides_stale(liveness: Path, timeout_s: int = STALE_S) -> bool:
    """The guides' look at a worker: the words in its liveness file, and its age in whole seconds."""
    try:
        text, changed = liveness.read_text(errors="replace"), int(liveness.stat().st_mtime)
    except OSError:
        return True
    return SUCCESS not in text or int(time.time()) - changed > timeout_s


@contextlib.contextmanager
def idle(name: str, count: int = 3) -> Iterator[tuple[int, int]]:
    """The pid of a supervisor with so many children, and its port (0: none)."""
    with directory() as (where, births):
        port, names = free_port(), [f"c{i}" for i in range(count)]
        if name == "supervisord":
            argv = supervisord(where, names, births.path, port)
        else:
            argv = circus(where, names, births.path, (port, free_port()), "info")
        found = Supervised(argv, where, None, births, both=True)
        found.start()
        try:
            found.born(names)
            yield found.process.pid, port if name == "supervisord" else 0
        finally:
            # its children are ended with the directory
            found.end(signal.SIGKILL)
