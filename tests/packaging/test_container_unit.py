"""The host's unit on a real systemd, with a program in docker's place that only writes down what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.box import Box

NAME = "yrnode-container.service"
UNIT = Path(__file__).resolve().parents[2] / "packaging/container" / NAME
# A container that runs is a file; whoever is attached to it ends when it is stopped.
DOCKER = """#!/bin/sh
printf '%s\\t' "$@" >>/run/said
echo >>/run/said
case $1 in
  inspect) if [ -e /run/container ]; then echo true; else echo "no such container" >&2; exit 1; fi ;;
  create) [ ! -e /run/container ] || { echo "the name is in use" >&2; exit 1; } ;;
  start) echo $$ >/run/container; exec sleep 1000 ;;
  stop) kill "$(cat /run/container)"; rm /run/container ;;
esac
"""
STARTED, STOPPED = ["start", "--attach", "yrnode"], ["stop", "-t", "300", "yrnode"]


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    found = Box()
    try:
        found.write("/usr/local/bin/docker-for-test", DOCKER)
        found.run("chmod", "755", "/usr/local/bin/docker-for-test")
        found.write(f"/etc/systemd/system/{NAME}", UNIT.read_text())
        found.write(f"/etc/systemd/system/{NAME}.d/test.conf", "[Service]\nRestartSec=100ms\n")
        found.write("/etc/yrnode/container", "RUNTIME=docker-for-test\nMORE=--env=A=1 --volume=/data:/data\n")
        found.systemctl("daemon-reload")
        yield found
    finally:
        found.close()


def said(box: Box) -> list[list[str]]:
    """The commands since the last call, each as its words."""
    lines = box.run("cat", "/run/said").splitlines()
    box.run("truncate", "--size=0", "/run/said")
    return [line.rstrip("\t").split("\t") for line in lines]


def until_started(box: Box) -> list[list[str]]:
    box.run("timeout", "30", "sh", "-c", "until tail -n 1 /run/said | grep -q ^start; do sleep 0.05; done")
    return said(box)


def test_what_the_runtime_is_told(box: Box) -> None:
    box.systemctl("start", NAME)
    asked, removed, created, started = until_started(box)
    assert asked == ["inspect", "--format", "{{.State.Running}}", "yrnode"]
    assert removed == ["rm", "yrnode"]
    assert created[:2] == ["create", "--name=yrnode"]
    # each option is a word of its own
    assert all(word.startswith("--") for word in created[1:-1])
    assert {f"--device=/dev/davinci{n}" for n in range(8)} <= set(created)
    assert created[-4:] == ["--volume=/home/models:/home/models:ro", "--env=A=1", "--volume=/data:/data", "yrnode:1"]
    assert started == STARTED

    box.systemctl("reload", NAME)
    assert said(box) == [["kill", "--signal=USR1", "yrnode"]]


def test_the_end_of_the_client_alone_does_not_touch_the_container(box: Box) -> None:
    box.run("sh", "-c", "kill -9 $(cat /run/container)")
    again = until_started(box)
    assert [words[0] for words in again] == ["inspect", "create", "start"]
    assert box.systemctl("is-active", NAME) == "active"


def test_a_stop_gives_it_time_and_a_restart_makes_another_one(box: Box) -> None:
    box.systemctl("restart", NAME)
    first, *others = until_started(box)
    assert first == STOPPED
    assert [words[0] for words in others] == ["inspect", "rm", "create", "start"]
    box.systemctl("stop", NAME)
    assert said(box) == [STOPPED]
