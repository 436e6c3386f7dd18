"""Who follows a log gets every line once, whatever becomes of the file meanwhile."""

import os
import threading
from pathlib import Path

import pytest

from yrnode.cli.follow import Follower
from yrnode.process import rotate as rotation
from yrnode.process.rotate import rotate


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "etcd.log"
    path.write_bytes(b"before\n")
    return path


def write(path, text):
    with path.open("ab") as f:
        f.write(text)


def turn_over(path, keep=3):
    """At its present size."""
    rotate(path, path.stat().st_size, keep)


def all_of(follower):
    found = []
    while lines := follower.lines():
        found += lines
    return b"|".join(found).decode()


def test_from_the_end_on_and_only_whole_lines(log):
    follower = Follower(log)
    assert follower.end == 7
    assert all_of(follower) == ""
    write(log, b"one\ntw")
    assert all_of(follower) == "one"
    write(log, b"o\n")
    assert all_of(follower) == "two"


def test_what_came_since_the_last_look_is_in_the_copy(log):
    follower = Follower(log)
    write(log, b"one\nhalf ")
    assert all_of(follower) == "one"
    write(log, b"a line\ntwo\nthr")
    turn_over(log)
    write(log, b"ee\nfour\n")
    assert all_of(follower) == "half a line|two|three|four"
    write(log, b"five\n")
    assert all_of(follower) == "five"


def test_a_rotation_right_after_the_last_lines_were_shown(log):
    follower = Follower(log)
    write(log, b"one\n")
    turn_over(log)
    assert all_of(follower) == "one"


def test_who_was_held_up_for_several_rotations(log):
    follower = Follower(log)
    write(log, b"one\n")
    assert all_of(follower) == "one"
    for i in range(3):
        write(log, b"round %d\n" % i)
        turn_over(log)
    write(log, b"after\n")
    assert all_of(follower) == "round 0|round 1|round 2|after"
    write(log, b"last\n")
    turn_over(log)
    assert all_of(follower) == "last"


def test_who_was_held_up_until_his_part_was_gone_gets_all_there_is(log):
    follower = Follower(log)
    turn_over(log)
    for i in range(6):
        write(log, b"round %d\n" % i)
        turn_over(log)
    assert all_of(follower).split("|")[-3:] == ["round 3", "round 4", "round 5"]


def test_a_file_that_has_grown_again_beyond_the_place(log):
    follower = Follower(log)
    write(log, b"one\n")
    turn_over(log)
    write(log, b"and far more than there was before\n")
    assert all_of(follower) == "one|and far more than there was before"


def test_a_copy_that_is_there_before_the_file_is_emptied(log, monkeypatch):
    """The follower looks just then."""
    follower = Follower(log)
    write(log, b"one\n")
    seen = []
    real = os.ftruncate

    def ftruncate(fd, size):
        write(log, b"two\n")
        seen.append(all_of(follower))
        real(fd, size)

    monkeypatch.setattr(rotation.os, "ftruncate", ftruncate)
    turn_over(log)
    assert (log.stat().st_size, seen) == (0, ["one|two"])
    write(log, b"three\n")
    assert all_of(follower) == "three"


def test_of_a_file_far_beyond_its_bound_the_place_is_found_in_the_half_that_is_kept(log):
    follower = Follower(log)
    lines = [b"line %05d\n" % i for i in range(2000)]
    write(log, b"".join(lines[:1500]))
    assert all_of(follower).endswith("line 01499")
    write(log, b"".join(lines[1500:]))
    rotate(log, 5500)
    assert log.with_name("etcd.log.1").stat().st_size <= 11_000
    assert all_of(follower).split("|") == [line.decode().strip() for line in lines[1500:]]


def test_where_that_place_was_dropped_too_all_that_is_kept_is_shown(log):
    follower = Follower(log)
    write(log, b"".join(b"line %05d\n" % i for i in range(2000)))
    rotate(log, 1000)
    found = all_of(follower).split("|")
    assert found[0] == "line 01819"
    assert found[-1] == "line 01999"


def test_a_file_that_was_emptied_without_a_copy(log):
    follower = Follower(log)
    write(log, b"one\nha")
    assert all_of(follower) == "one"
    os.truncate(log, 0)
    # a copy may still come
    assert all_of(follower) == ""
    write(log, b"x\n")
    assert all_of(follower) == "ha|x"


def test_a_copy_that_comes_later_for_want_of_room(log):
    follower = Follower(log)
    write(log, b"one\n")
    whole = log.read_bytes()
    os.truncate(log, 0)
    assert all_of(follower) == ""
    log.with_name("etcd.log.1").write_bytes(b"--- dropped\n" + whole)
    assert all_of(follower) == "one"


def test_a_renamed_file_is_read_to_its_end_before_the_next(log):
    follower = Follower(log)
    write(log, b"one\n")
    assert all_of(follower) == "one"
    older = log.rename(log.with_name("etcd.log.1"))
    write(older, b"two\nha")
    write(log, b"three\n")
    assert all_of(follower) == "two"
    write(older, b"lf\nunended")
    follower.go_on([older, log])
    assert all_of(follower) == "half|unended|three"
    follower.go_on([older, log])
    assert all_of(follower) == ""
    write(log, b"four\n")
    turn_over(log)
    assert all_of(follower) == "four"


def test_files_that_came_in_between_are_read_and_one_that_is_gone_is_not_missed(log):
    follower = Follower(log)
    second, third = log.with_name("b.log"), log.with_name("c.log")
    second.write_bytes(b"b\n")
    third.write_bytes(b"c\n")
    follower.go_on([log, second, third, log.with_name("never")])
    assert all_of(follower) == "b|c"
    third.unlink()
    follower.go_on([log, second])
    assert all_of(follower) == "b"
    follower.go_on([])
    assert all_of(follower) == ""


LINES = 1000


def test_every_line_once_while_it_is_written_and_rotated(tmp_path: Path) -> None:
    """One writer that appends, as a component does, and real rotations, at whatever moment."""
    log = tmp_path / "etcd.log"
    log.touch()
    follower = Follower(log)
    done = threading.Event()
    # what is written between the last read of the copy and the truncation is lost by rotation itself: so not then
    turn = threading.Lock()

    def write_all():
        with log.open("ab", buffering=0) as f:
            for i in range(LINES):
                with turn:
                    f.write(b"line %d" % i)
                    if i % 100 == 0:
                        turn_over(log, keep=1000)
                    f.write(b"\n")
        done.set()

    writer = threading.Thread(target=write_all)
    writer.start()
    found = []
    while True:
        over = done.is_set()
        found += follower.lines()
        if over and not (more := follower.lines()):
            break
        found += more if over else []
    writer.join()
    assert [line.decode() for line in found] == [f"line {i}" for i in range(LINES)]
