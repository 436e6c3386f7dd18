"""A component's start: its session, mark, directory, log and files, and the starts that cannot be."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.process.lab import NAME, Lab, until
from tests.support.tmpfs import tmpfs
from yrnode.process import table
from yrnode.process.exit import Exit
from yrnode.process.launch import LaunchError, launch
from yrnode.process.tail import BYTES, header, instance_lines

UP = "touch up; exec sleep 60"


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_it_runs_in_a_session_and_a_directory_of_its_own_with_its_mark(lab: Lab) -> None:
    instance = await lab.started(UP, generation=4)
    pid = instance.pid
    assert pid is not None
    proc = table.read(pid)
    assert proc is not None
    assert (proc.sid, proc.pgid, proc.ppid) == (pid, pid, os.getpid())
    assert instance.record.mark == f"{NAME}/worker/{instance.id}"
    # what the script becomes: until the kernel has put it in place it shows no environment
    await until(lambda: table.command(pid) == "sleep 60")
    assert table.marks(pid) == (instance.record.mark, str(lab.home))
    assert Path(f"/proc/{pid}/cwd").resolve() == lab.home / "worker"
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert b"YRNODE_GENERATION=4" in environ
    names = {e.split(b"=")[0].decode() for e in environ if e}
    own = {"PATH", "PYTHON", "YRNODE_INSTANCE", "YRNODE_HOME", "YRNODE_GENERATION", "YRNODE_LIFE"}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == own, "nothing is inherited"
    assert [m.pid for m in instance.members()] == [pid]
    assert instance.watched == {pid}


async def test_its_log_begins_with_a_header_and_is_appended_to(lab: Lab) -> None:
    first = lab.start("echo one; echo two >&2")
    await until(lambda: len(lab.exits) == 1)
    second = lab.start("echo three", generation=2)
    await until(lambda: len(lab.exits) == 2)
    assert (lab.home / "log/worker.log").read_text() == (
        f"--- yrnode: worker instance {first.id} generation 1\none\ntwo\n"
        f"--- yrnode: worker instance {second.id} generation 2\nthree\n"
    )
    assert instance_lines(second.spec.log, second.id) == ["three"]


async def test_its_standard_input_is_empty(lab: Lab) -> None:
    lab.start("cat; echo end of input")
    await until(lambda: lab.exits)
    assert (lab.home / "log/worker.log").read_text().endswith("end of input\n")


async def test_files_and_directories_are_made_before_it_starts(lab: Lab) -> None:
    run = lab.home / "run/worker"
    config = lab.home / "worker/config.json"
    script = f"test -d {run} && test $(cat {config}) = text"
    lab.start(script, dirs=(run,), files={config: "text\n"})
    await until(lambda: lab.exits)
    assert lab.exits == [Exit(code=0)]


async def test_values_replace_whole_words(lab: Lab) -> None:
    spec = lab.spec("", argv=("/bin/sh", "-c", 'echo "$@"', "sh", "<rpc_port>", "--x=<rpc_port>"))
    instance = launch(spec, 1, lab.owner, lab.exits.append, {"<rpc_port>": "20001"})
    lab.instances.append(instance)
    await until(lambda: lab.exits)
    assert instance_lines(spec.log, instance.id) == ["20001 --x=<rpc_port>"]


def unwritable(home: Path) -> dict[str, Any]:
    (home / "file").write_text("")
    return {"dir": home / "file/worker"}


def not_executable(home: Path) -> dict[str, Any]:
    script = home / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(stat.S_IRUSR)
    return {"argv": (str(script),)}


def no_interpreter(home: Path) -> dict[str, Any]:
    script = home / "script"
    script.write_text("#!/no/such/python\n")
    script.chmod(stat.S_IRWXU)
    return {"argv": (str(script),)}


CANNOT = {
    "missing": (lambda home: {"argv": ("/no/such/program", "x")}, r"/no/such/program: No such file"),
    "not executable": (not_executable, r"script: Permission denied"),
    "no interpreter": (no_interpreter, r"script: No such file"),
    "unwritable directory": (unwritable, r"Not a directory \(.*/file/worker\)"),
    "log is a directory": (lambda home: {"log": home}, r"Is a directory"),
    "a file that cannot be written": (lambda home: {"files": {home / "no/x": ""}}, r"No such file.*no/x"),
    "a word with a zero byte": (lambda home: {"argv": ("/bin/echo", "a\0b")}, r"/bin/echo: embedded null byte"),
    "too many words": (lambda home: {"argv": ("/bin/echo", *["x" * 100_000] * 100)}, r"Argument list too long"),
}


@pytest.mark.parametrize("case", CANNOT)
async def test_what_cannot_be_started_says_why_and_leaves_nothing_open(lab: Lab, case: str) -> None:
    facts, words = CANNOT[case]
    made = facts(lab.home)
    lab.spec("true")
    before = fds()
    with pytest.raises(LaunchError, match=f"^cannot start .*{words}"):
        lab.start("true", **made)
    assert fds() == before
    assert lab.exits == []


async def test_a_disk_that_is_full_is_told_from_what_cannot_be_started(lab: Lab) -> None:
    with tmpfs("64k") as small:
        with contextlib.suppress(OSError), open(small / "all", "wb") as f:
            f.write(b"x" * 200_000)
        with pytest.raises(LaunchError, match="No space left on device") as full:
            lab.start("exec sleep 60", files={small / "config": "x" * 5000})
        assert full.value.no_room
    with pytest.raises(LaunchError) as missing:
        lab.start("", argv=("/no/such/program",))
    assert not missing.value.no_room


async def test_a_start_leaves_no_descriptor_behind(lab: Lab) -> None:
    before = fds()
    lab.start("true")
    assert fds() == before + 1, "one pidfd"
    await until(lambda: lab.exits)
    assert fds() == before


def test_lines_of_an_instance(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert instance_lines(log, "a") == []
    log.write_bytes(header("x", "a", 1) + b"of a\n" + header("x", "b", 2) + b"of b\n\xff\nend")
    assert instance_lines(log, "b") == ["of b", "�", "end"]
    # its header is further back than what is read
    log.write_bytes(header("x", "c", 3) + b"long\n" * BYTES + b"last\n")
    assert instance_lines(log, "c")[-2:] == ["long", "last"]
    assert len(instance_lines(log, "c")) < BYTES / 4
