"""How each component's death reads: causes from its exit and from what it really says."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.components.conftest import by_name
from tests.support.etcd import ETCD_34, ETCD_35, free_port
from yrnode.components import datasystem, etcd, node, router, vllm
from yrnode.components.host import Host
from yrnode.model.cause import Cause, Reason
from yrnode.process.exit import Exit

R = Reason

# etcd

INFO = '{"level":"info","ts":"2026-11-29T22:58:28.006Z","caller":"embed/etcd.go:369","msg":"closed etcd server"}'
WARN = (
    '{"level":"warn","msg":"failed to start etcd","error":"listen tcp 127.0.0.1:2379: bind: address already in use"}'
)
BIND = (
    '{"level":"fatal","ts":"2026-11-29T22:58:28.006Z","caller":"etcdmain/etcd.go:203","msg":"discovery failed",'
    '"error":"listen tcp 127.0.0.1:2379: bind: address already in use","stacktrace":"go.etcd.io/etcd/x\\n\\t/tmp"}'
)
ENV_35 = (
    '{"level":"fatal","ts":1795993106.8,"caller":"flags/flag.go:85","msg":"conflicting environment variable is '
    'shadowed by corresponding command-line flag","environment-variable":"ETCD_NAME","stacktrace":"x"}'
)
ENV_34 = (
    '2026-11-29 22:58:26.760179 C | pkg/flags: conflicting environment variable "ETCD_NAME" is shadowed by '
    "corresponding command-line flag (either unset environment variable or disable flag)"
)
CORRUPT = '{"level":"panic","msg":"failed to recover v3 backend from snapshot","error":"no database"}'


@pytest.mark.parametrize(
    ("lines", "ready", "reason", "evidence"),
    [
        (
            [INFO, WARN, BIND],
            False,
            R.START_FAILED,
            "discovery failed: listen tcp 127.0.0.1:2379: bind: address",
        ),
        ([INFO, BIND], True, R.EXITED, "discovery failed: listen tcp"),
        (
            [ENV_35],
            False,
            R.CONFIGURATION,
            "conflicting environment variable is shadowed by corresponding command-line flag: ETCD_NAME",
        ),
        ([ENV_34], False, R.CONFIGURATION, 'conflicting environment variable "ETCD_NAME"'),
        (
            ["flag provided but not defined: -nosuch", "Usage:", "", "  etcd [flags]"],
            False,
            R.CONFIGURATION,
            "flag provided but not defined: -nosuch",
        ),
        (["fatal error: runtime: out of memory"], True, R.EXITED, "fatal error: runtime: out of memory"),
        ([INFO, WARN], True, R.EXITED, ""),
        (["[1, 2]", "7", "null", '"x"', '{"level": null}', "{"], False, R.START_FAILED, ""),
        ([], False, R.START_FAILED, ""),
    ],
)
def test_etcd(lines: list[str], ready: bool, reason: Reason, evidence: str) -> None:
    found = etcd.read_death(Exit(code=1), ready, lines)
    assert (found.reason, found.text, found.component) == (reason, "exited: exit code 1", "etcd")
    assert evidence in found.evidence
    assert bool(found.evidence) is bool(evidence)
    assert "stacktrace" not in found.evidence
    assert len(found.evidence) <= 300


@pytest.mark.parametrize("binary", [ETCD_35, ETCD_34], ids=["3.5", "3.4"])
@pytest.mark.parametrize("case", ["shadowed", "unknown", "taken"])
def test_a_real_etcd(demo: Host, tmp_path: Path, binary: Path, case: str) -> None:
    if not binary.exists():
        pytest.skip(f"no {binary}")
    client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    changed = {
        "data-dir": str(tmp_path / "data"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": client if case == "taken" else peer,
    }
    words = [w for w in by_name(demo)["etcd"].argv[1:] if w[2:].partition("=")[0] not in changed]
    argv = [str(binary), *words, *(f"--{k}={v}" for k, v in changed.items())]
    env = {"PATH": os.defpath}
    if case == "shadowed":
        env["ETCD_NAME"] = "x"
    if case == "unknown":
        argv.append("--no-such-flag=1")
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
    found = etcd.read_death(Exit(code=done.returncode), False, (done.stdout + done.stderr).splitlines())
    expected = {
        "shadowed": (R.CONFIGURATION, "conflicting environment variable"),
        "unknown": (R.CONFIGURATION, "flag provided but not defined: -no-such-flag"),
        "taken": (R.START_FAILED, "address already in use"),
    }
    reason, part = expected[case]
    assert (found.reason, part in found.evidence) == (reason, True), found


# the worker

DSCLI = "[INFO] Log directory configured at: /s/worker/datasystem/logs"
EXITED = "[ERROR] [  FAILED  ] Worker exited with code 1"
PID = "[INFO] Starting worker service with PID: 10846"
ABNORMAL = (
    "[ERROR] [  FAILED  ] Start worker service @ 127.0.0.1:21881 failed: Worker service exited abnormally with code 1"
)
LAST = "[ERROR] Start failed: The worker service exited abnormally"
GLOG = "2026-11-29T22:59:47.201491 | E | zmq_socket_ref.cpp:64 |   | 11393:11393 | 409ac400 |  |  "
IN_USE = "ZMQ bind to tcp://127.0.0.1:21881 unsuccessful: Address already in use"


@pytest.mark.parametrize(
    ("lines", "reason", "evidence"),
    [
        (
            [
                DSCLI,
                PID,
                "[ERROR] [  FAILED  ] Worker exited with code 1",
                " output: ERROR: unknown command line flag 'foo_bar'",
                "",
                ABNORMAL,
                LAST,
            ],
            R.CONFIGURATION,
            "ERROR: unknown command line flag 'foo_bar'",
        ),
        (
            [DSCLI, PID, EXITED, " output: Error: illegal value 'abc' specified for int32 flag 'x' ", ABNORMAL, LAST],
            R.CONFIGURATION,
            "Error: illegal value 'abc' specified for int32 flag 'x'",
        ),
        (
            ["[ERROR] Start failed: Param enable_huge_tlb is missing a value"],
            R.CONFIGURATION,
            "[ERROR] Start failed: Param enable_huge_tlb is missing a value",
        ),
        (
            [
                DSCLI,
                "[ERROR] Start failed: Missing required: either etcd_address or metastore_address must be specified",
            ],
            R.CONFIGURATION,
            "[ERROR] Start failed: Missing required: either etcd_address or metastore_address must be specified",
        ),
        (
            ["[ERROR] Start failed: [Errno 2] No such file or directory: 'numactl'"],
            R.CONFIGURATION,
            "[ERROR] Start failed: [Errno 2] No such file or directory: 'numactl'",
        ),
        (
            [GLOG + "node_dead_timeout_s must be greater than node_timeout_s", LAST],
            R.CONFIGURATION,
            "node_dead_timeout_s must be greater than node_timeout_s",
        ),
        (
            [
                *(DSCLI, PID, EXITED, f" output: {GLOG}{IN_USE}", "Line of code : 64"),
                *(f"{GLOG}code: [Runtime error], msg: [{IN_USE}", ABNORMAL, LAST),
            ],
            R.START_FAILED,
            IN_USE,
        ),
        (
            [GLOG + "Open /proc/x failed: No such file or directory", LAST],
            R.START_FAILED,
            "Open /proc/x failed: No such file or directory",
        ),
        (
            [DSCLI, PID, "[ERROR] [  FAILED  ] Worker service is not ready within 90 seconds", ABNORMAL, LAST],
            R.START_FAILED,
            "[ERROR] [  FAILED  ] Worker service is not ready within 90 seconds",
        ),
        (["something else"], R.START_FAILED, "something else"),
        (["--- yrnode: worker instance x generation 1", ""], R.START_FAILED, ""),
        ([], R.START_FAILED, ""),
    ],
)
def test_a_worker_that_did_not_start(tmp_path: Path, lines: list[str], reason: Reason, evidence: str) -> None:
    found = datasystem.read_death(Exit(code=1), False, lines, tmp_path, None)
    assert found == Cause(reason, "did not start: exit code 1", evidence, "worker")


def test_a_real_dscli(tmp_path: Path, demo: Host) -> None:
    dscli = by_name(demo)["worker"].argv[0]
    if not Path(dscli).is_absolute():
        pytest.skip("no dscli")
    where = ["--worker_address", f"127.0.0.1:{free_port()}", "--etcd_address", f"127.0.0.1:{free_port()}"]
    argv = [dscli, "start", "-t", "30", "-d", str(tmp_path), "-w", *where, "--foo_bar", "1"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    found = datasystem.read_death(
        Exit(code=done.returncode), False, (done.stdout + done.stderr).splitlines(), tmp_path, None
    )
    assert found.reason is R.CONFIGURATION
    assert found.evidence == "ERROR: unknown command line flag 'foo_bar'"


KILLED = "local node failed time 31200.6 has been reached 10000, need kill local worker"
HEAD = "2026-11-30T01:07:34.012350 | E | etcd_store.cpp:631 |   | {pid}:2655 |  |  |  "


def test_a_worker_that_ended_itself(tmp_path: Path) -> None:
    log = tmp_path / "datasystem_worker.INFO.log"
    older = tmp_path / "older.INFO.log"
    older.write_text(HEAD.format(pid=2601) + "ready for passive scaling down\n")
    os.utime(older, (1, 1))
    log.write_text("x\n" * 50000 + HEAD.format(pid=2601) + f"{KILLED}\nlast words\n")
    found = datasystem.read_death(Exit(signal=9), True, [], tmp_path, 2601)
    assert found.text == "exited: killed by SIGKILL: it ended itself, out of the ring"
    assert found.evidence.endswith(KILLED)
    quiet = Cause(R.EXITED, "exited: killed by SIGKILL", "", "worker")
    # all instances write to one file: an earlier one's last words are not this one's
    for pid in (260, 26011, None):
        assert datasystem.read_death(Exit(signal=9), True, [], tmp_path, pid) == quiet
    log.write_text("nothing of the kind\n")
    assert datasystem.read_death(Exit(signal=9), True, [], tmp_path, 2601) == quiet
    log.unlink()
    older.unlink()
    assert datasystem.read_death(Exit(signal=9), True, [], tmp_path / "none", 2601).evidence == ""


def test_a_worker_that_had_stood_still_before_it_was_killed(tmp_path: Path) -> None:
    words = "Worker was hanged about 10724.51 ms"
    (tmp_path / "datasystem_worker.INFO.log").write_text(HEAD.format(pid=2601) + f"{words}\n")
    found = datasystem.read_death(Exit(signal=9), True, [], tmp_path, 2601)
    assert found.text == "exited: killed by SIGKILL"
    assert found.evidence.endswith(words)
    assert datasystem.read_death(Exit(signal=9), True, [], tmp_path, 2602).evidence == ""
    assert datasystem.read_death(Exit(code=0), True, [], tmp_path, 2601).evidence == ""


# ranks

REFUSED = "vllm refused its command line (exit code 2)"
NOT_STARTED = "did not start: exit code 1"
ARGPARSE = "vllm: error: unrecognized arguments: --no-such-flag"
SERVE_ARGPARSE = "vllm serve: error: argument --port: invalid int value: 'x'"
CORE = "(EngineCore pid=812) ERROR 11-29 10:00:00 [core.py:842] ValueError: No available memory for the cache blocks."
API = "(APIServer pid=801) RuntimeError: Engine core initialization failed. See root cause above."
DEAD = "(APIServer pid=801) ERROR 11-29 10:00:00 [async_llm.py:1] EngineDeadError: EngineCore encountered an issue."
ULIMIT = "(APIServer pid=801) WARNING 11-29 10:00:00 [system_utils.py:255] ulimit: errors like `OSError: [Errno 24]`."
BYE = "(APIServer pid=801) INFO:     Application shutdown complete."


@pytest.mark.parametrize(
    ("how", "ready", "lines", "cause"),
    [
        (
            Exit(code=2),
            False,
            ["usage: vllm serve [-h]", ARGPARSE],
            Cause(R.CONFIGURATION, REFUSED, ARGPARSE),
        ),
        (
            Exit(code=2),
            False,
            [SERVE_ARGPARSE],
            Cause(R.CONFIGURATION, REFUSED, SERVE_ARGPARSE),
        ),
        # the root cause is above what the API server says last
        (
            Exit(code=1),
            False,
            ["INFO x", CORE, API, "nanobind leaked"],
            Cause(R.START_FAILED, NOT_STARTED, CORE),
        ),
        (
            Exit(code=1),
            False,
            [
                "Traceback (most recent call last):",
                "OSError: [Errno 98] Address already in use",
                "[1] nanobind: leaked",
            ],
            Cause(R.START_FAILED, NOT_STARTED, "OSError: [Errno 98] Address already in use"),
        ),
        (Exit(code=0), False, [BYE], Cause(R.START_FAILED, "did not start: exit code 0", BYE)),
        # after it was ready: a crash whatever the code, also 2
        (
            Exit(code=0),
            True,
            [DEAD, BYE],
            Cause(R.EXITED, "exited: exit code 0 that nobody asked for, as after an engine's death", DEAD),
        ),
        (Exit(code=2), True, [DEAD], Cause(R.EXITED, "exited: exit code 2", DEAD)),
        # a killed one had no last word
        (Exit(signal=signal.SIGKILL), True, [BYE], Cause(R.EXITED, "exited: killed by SIGKILL", "")),
        # vLLM's word at every start where the limit of open files is low
        (Exit(signal=signal.SIGKILL), True, [ULIMIT, BYE], Cause(R.EXITED, "exited: killed by SIGKILL", "")),
        (
            Exit(signal=signal.SIGTERM),
            False,
            ["INFO x"],
            Cause(R.START_FAILED, "did not start: killed by SIGTERM"),
        ),
        # ended while no daemon saw it
        (Exit(), True, ["INFO: GET /load 200"], Cause(R.EXITED, "exited: ended, exit code unknown", "")),
    ],
)
def test_a_rank(how: Exit, ready: bool, lines: list[str], cause: Cause) -> None:
    found = vllm.read_death(how, ready, lines, "rank/serve/0")
    assert (found.reason, found.text, found.evidence) == (cause.reason, cause.text, cause.evidence)
    assert found.component == "rank/serve/0"


def test_evidence_is_bounded() -> None:
    found = vllm.read_death(Exit(code=1), False, ["Error " * 1000], "r").evidence
    assert found.endswith("Error …")
    assert 290 < len(found) <= 300


# the router, and who reads whose death


def test_a_router() -> None:
    lines = ["--- yrnode: router instance x generation 1", "starting", "boom", ""]
    assert router.read_death(Exit(code=1), True, lines) == Cause(R.EXITED, "exited: exit code 1", "boom", "router")
    assert router.read_death(Exit(code=1), False, []) == Cause(R.START_FAILED, "exited: exit code 1", "", "router")


def test_each_kind_is_read_by_its_own_reader(demo: Host) -> None:
    specs = by_name(demo)
    dead = {name: node.read_death(spec, Exit(code=2), False, [ARGPARSE]) for name, spec in specs.items()}
    assert {name: cause.component for name, cause in dead.items()} == {name: name for name in specs}
    assert dead["rank/serve/0"].reason is R.CONFIGURATION
    assert dead["etcd"].reason is R.START_FAILED
    assert dead["worker"].text == "did not start: exit code 2"
