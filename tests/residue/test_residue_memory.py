"""What memory is free, by the host, by its control groups and in huge pages; and who holds a dead worker's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from yrnode.model.memory import Held, Memory, MemoryNeed
from yrnode.process import record, table
from yrnode.process.launch import Owner
from yrnode.process.record import Ident, Record
from yrnode.residue import memory

MIB = 1024**2
MEMINFO = """MemTotal:       16384 kB
MemAvailable:    8192 kB
HugePages_Total:      10
HugePages_Free:        7
HugePages_Rsvd:        3
HugePages_Surp:        1
Hugepagesize:       2048 kB
"""
V1 = "14 35 0:32 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2 = "20 41 0:38 {top} /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def host(root: Path, cgroup: str = "", mounts: str = "", **files: str) -> Path:
    """A host as the kernel shows it. Names of `files` have `__` for a slash."""
    given = {
        "proc__meminfo": MEMINFO,
        "proc__self__cgroup": cgroup,
        "proc__self__mountinfo": "23 1 0:2 / / rw - ext4 /dev/vda rw\n" + mounts,
        **files,
    }
    for name, text in given.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_host_alone(tmp_path: Path) -> None:
    assert memory.free(False, host(tmp_path)) == Memory(8 * MIB, 16 * MIB, "MemAvailable")


def test_huge_pages_that_a_mapping_has_reserved_are_not_free(tmp_path: Path) -> None:
    assert memory.free(True, host(tmp_path)) == Memory(8 * MIB, 20 * MIB, "huge pages")
    more = host(tmp_path, proc__sys__vm__nr_overcommit_hugepages="5\n")
    assert memory.free(True, more) == Memory(16 * MIB, 28 * MIB, "huge pages")


def test_a_kernel_that_does_not_tell(tmp_path: Path) -> None:
    assert memory.free(False, tmp_path) is None


@pytest.mark.parametrize(
    ("cgroup", "top", "inside"),
    [
        ("0::/pod/box\n", "/", "pod/box/"),
        # a container with a control group namespace of its own
        ("0::/\n", "/", ""),
        # one without: the path is the host's, of which it sees only its own part
        ("0::/docker/1/box\n", "/docker/1", "box/"),
        ("0::/../other\n", "/", ""),
    ],
)
def test_a_control_group_of_version_2(tmp_path: Path, cgroup: str, top: str, inside: str) -> None:
    at = f"sys/fs/cgroup/{inside}"
    files = {"memory.max": f"{6 * MIB}\n", "memory.current": f"{5 * MIB}\n"}
    files["memory.stat"] = f"anon {MIB}\ninactive_file {MIB}\nactive_file {MIB}\nshmem {MIB}\nslab_reclaimable 0\n"
    root = host(tmp_path, cgroup, V2.format(top=top), **{at + k: v for k, v in files.items()})
    found = memory.free(False, root)
    assert found is not None
    assert (found.free, found.total) == (3 * MIB, 6 * MIB)
    assert found.where == f"memory limit of the control group {(root / at)}"


def test_a_control_group_of_version_1_whose_parent_is_tighter(tmp_path: Path) -> None:
    files = {}
    for at, limit, used in (
        ("pod/box", 9223372036854771712, 2 * MIB),
        ("pod", 4 * MIB, 3 * MIB),
        (".", 2**62, 9 * MIB),
    ):
        folder = f"sys/fs/cgroup/memory/{at}"
        files[f"{folder}/memory.limit_in_bytes"] = f"{limit}\n"
        files[f"{folder}/memory.usage_in_bytes"] = f"{used}\n"
        files[f"{folder}/memory.stat"] = "cache 9\nactive_file 0\ntotal_active_file 4096\n"
    root = host(
        tmp_path, "9:pids:/x\n4:cpu,memory:/pod/box\n0::/\n", V1.format(top="/") + V2.format(top="/"), **files
    )
    found = memory.free(False, root)
    assert found is not None
    assert (found.free, found.total) == (MIB + 4096, 4 * MIB)
    assert found.where.endswith("/sys/fs/cgroup/memory/pod")


def test_no_limit_in_a_control_group(tmp_path: Path) -> None:
    root = host(tmp_path, "0::/\n", V2.format(top="/"), sys__fs__cgroup__memory="")
    (root / "sys/fs/cgroup/memory.max").write_text("max\n")
    (root / "sys/fs/cgroup/memory.current").write_text("5\n")
    assert memory.free(False, root) == Memory(8 * MIB, 16 * MIB, "MemAvailable")


def test_this_very_host() -> None:
    found = memory.free(False)
    assert found is not None
    assert 0 < found.free < found.total


CLIENT = """
import mmap, os, sys, time
fd = int(sys.argv[1])
held = mmap.mmap(fd, os.fstat(fd).st_size, mmap.MAP_SHARED, mmap.PROT_READ)
os.close(fd)
print(flush=True)
time.sleep(60)
"""


@contextmanager
def client(fd: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that maps it, touches nothing of it and keeps no descriptor, as the SDK does."""
    argv = [sys.executable, "-c", CLIENT, str(fd)]
    with subprocess.Popen(argv, pass_fds=[fd], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def region(size: int, filled: int) -> int:
    fd = os.memfd_create("datasystem")
    os.ftruncate(fd, size)
    os.pwrite(fd, b"x" * filled, 0)
    return fd


def remember(owner: Owner, component: str, pid: int) -> None:
    proc = table.read(pid)
    assert proc is not None
    ident = Ident(proc.pid, proc.start_ticks)
    boot = table.boot_id()
    kept = Record(component, "i1", 1, f"{owner.name}/{component}/i1", str(owner.home), boot, 0, ident, ident)
    kept.save(record.path_of(owner.run_dir, component))


def test_what_clients_hold_of_a_dead_worker(tmp_path: Path) -> None:
    owner, need = Owner("test/n0", tmp_path, tmp_path / "run"), MemoryNeed(64 * MIB)
    fd = region(32 * MIB, 3 * MIB)
    # one has touched nothing of it, and keeps all of it alive; the kernel tells root how much that is
    size = 3 * MIB if os.geteuid() == 0 else 32 * MIB
    with client(fd) as first, client(fd) as second:
        os.close(fd)
        for process, name in ((first, "rank/serve/0"), (second, "rank/serve/1")):
            remember(owner, name, process.pid)
        assert Held(size, frozenset({"rank/serve/0", "rank/serve/1"})) in memory.held(need, owner)
        first.kill()
        first.wait(10)
        assert Held(size, frozenset({"rank/serve/1"})) in memory.held(need, owner)
        second.kill()
        second.wait(10)
        assert not [h for h in memory.held(need, owner) if "rank/serve/1" in h.holders]


def test_huge_pages_count_as_a_whole(tmp_path: Path) -> None:
    owner = Owner("test/n0", tmp_path, tmp_path / "run")
    fd = region(32 * MIB, MIB)
    with client(fd) as process:
        os.close(fd)
        held = memory.held(MemoryNeed(64 * MIB, huge=True), owner)
        assert [h.size for h in held if any(f"pid {process.pid} " in x for x in h.holders)] == [32 * MIB]


def test_what_a_living_worker_has_is_not_counted(tmp_path: Path) -> None:
    owner = Owner("test/n0", tmp_path, tmp_path / "run")
    fd = region(32 * MIB, MIB)
    with client(fd) as process:
        seen = [
            h for h in memory.held(MemoryNeed(64 * MIB), owner) if any(f"pid {process.pid} " in x for x in h.holders)
        ]
        assert len(seen) == 1
        rename = f"open('/proc/self/comm', 'w').write({memory.WORKER!r})\n{CLIENT}"
        with subprocess.Popen(
            [sys.executable, "-c", rename, str(fd)], pass_fds=[fd], stdout=subprocess.PIPE
        ) as worker:
            assert worker.stdout is not None
            worker.stdout.readline()
            after = memory.held(MemoryNeed(64 * MIB), owner)
            worker.kill()
        assert not [h for h in after if any(f"pid {process.pid} " in x for x in h.holders)]
    os.close(fd)
