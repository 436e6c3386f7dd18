"""The secrets that a node knows: also what runs with one that the cluster file has no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from yrnode.components.known import of_running
from yrnode.process import record, table
from yrnode.process.record import Ident, Record

TOKEN, KEY = "planted-token-1", "planted-key-2"


def test_what_runs_keeps_the_secrets_that_it_was_started_with(tmp_path: Path) -> None:
    program = "import sys; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", program, "--api-key", KEY],
        env={"HF_TOKEN": TOKEN, "PLAIN": "harmless"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        proc = table.read(child.pid)
        assert proc is not None
        kept = Record("rank/s/0", "i1", 1, "m", "h", table.boot_id(), 0, launched=Ident.of(proc))
        kept.save(record.path_of(tmp_path, "rank/s/0"))
        (tmp_path / "damaged.json").write_text("{")
        assert set(of_running(tmp_path)) == {TOKEN, KEY}
    finally:
        child.communicate()
    assert of_running(tmp_path) == []


def test_where_nothing_ever_ran_nothing_is_known(tmp_path: Path) -> None:
    assert of_running(tmp_path / "none") == []
