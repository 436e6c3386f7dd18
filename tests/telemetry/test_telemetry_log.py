"""The daemon's log on real file descriptors."""

import os
import re
import subprocess
import sys

import pytest

_TALK = """
import logging, os, sys
from yrnode.telemetry import log
log.set_up(journal_socket="/nowhere")
talk = logging.getLogger("yrnode.x")
talk.debug("not this")
talk.info("worker: %s", "starting")
talk.warning("two\\nlines and \\x1b[31mred")
talk.error("long %s", "ä" * 5000)
talk.info("broken %d", "x")
talk.info("caf\\udcff")
try:
    {}["gone"]
except KeyError:
    talk.exception("a round raised")
"""


def talk(**more):
    child = subprocess.run(
        [sys.executable, "-c", _TALK], stderr=subprocess.PIPE, timeout=20, check=False, **more
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    return child.stderr.decode().splitlines()


def test_one_line_a_record_with_time_and_level():
    said = talk()
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 ")
    assert all(stamp.match(line) for line in said[:3])
    assert [stamp.sub("", line) for line in said[:2]] == [
        "INFO worker: starting",
        "WARNING two\\nlines and \\x1b[31mred",
    ]
    assert len(said[2].encode()) <= 4000
    assert said[2].endswith("…")
    assert said[3] == "a record of yrnode.x cannot be shown: TypeError"
    assert said[4].endswith("INFO caf\\udcff")
    assert re.search(r"ERROR a round raised: KeyError: 'gone' \(<string>:\d+ <module>\)$", said[5])
    assert len(said) == 6


def test_secrets_are_covered_in_whatever_is_logged():
    talk = (
        "import logging\nfrom yrnode.model.cover import Cover\nfrom yrnode.telemetry import log\n"
        "log.set_up(journal_socket='/nowhere', cover=Cover(['known-4e1b']))\n"
        "logging.getLogger('x').info('%s', 'known-4e1b at http://me:pw77@host')\n"
        "try:\n    raise ValueError('api_key: abcdef')\nexcept ValueError:\n    logging.exception('a round failed')\n"
    )
    child = subprocess.run([sys.executable, "-c", talk], stderr=subprocess.PIPE, timeout=20, check=True)
    said = child.stderr.decode().splitlines()
    assert said[0].endswith("INFO *** at http://***@host")
    assert "a round failed: ValueError: api_key: *** (" in said[1]
    assert len(said) == 2


def test_without_its_socket_the_journal_reads_priorities_and_no_time():
    read, write = os.pipe()
    status = os.fstat(write)
    env = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
    try:
        subprocess.run([sys.executable, "-c", _TALK], stderr=write, env=env, timeout=20, check=True)
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as f:
        said = f.read().decode().splitlines()
    assert said[0] == "<6>worker: starting"
    assert said[1] == "<4>two\\nlines and \\x1b[31mred"
    assert said[5].startswith("<3>a round raised")


def test_another_stream_than_the_journals():
    said = talk(env={**os.environ, "JOURNAL_STREAM": "1:1"})
    assert said[0][:2] == "20"


@pytest.mark.parametrize("where", ["closed", "/dev/full", "reader gone"])
def test_a_stderr_that_cannot_be_written_raises_nothing(where):
    redirect = {"closed": "2>&-", "/dev/full": "2>/dev/full", "reader gone": ""}[where]
    read, write = os.pipe()
    os.close(read)
    try:
        command = f'exec "$0" -c "$1" {redirect}'
        child = subprocess.run(
            ["sh", "-c", command, sys.executable, _TALK + "\nprint('alive')"],
            stdout=subprocess.PIPE,
            stderr=write,
            timeout=20,
            check=False,
        )
    finally:
        os.close(write)
    assert (child.returncode, child.stdout) == (0, b"alive\n")


_FLOOD = """
import logging, sys, time
from yrnode.telemetry import log
log.set_up()
began = time.monotonic()
for i in range(2000):
    logging.info("%s", "x" * 200)
print(time.monotonic() - began, flush=True)
sys.stdin.readline()
logging.info("back")
"""


def test_a_reader_that_stopped_reading_does_not_stop_the_daemon():
    child = subprocess.Popen(
        [sys.executable, "-c", _FLOOD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        took = float(child.stdout.readline())
        assert took < 5
        os.set_blocking(child.stderr.fileno(), False)
        child.stderr.read()
        os.set_blocking(child.stderr.fileno(), True)
        child.stdin.write(b"\n")
        child.stdin.close()
        last = child.stderr.read().decode()
        assert re.search(r"INFO back \[\d+ lines before this one could not be written\]$", last.strip())
        assert child.wait(10) == 0
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
