"""What the kernel is asked: page size, memory, ports, interfaces, the clock, file systems. Judges by tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.preflight.build import CLUSTER, look, verdicts
from yrnode.config.ports import PortUse
from yrnode.model.memory import Memory, MemoryNeed
from yrnode.model.spec import NIC
from yrnode.preflight import clock, copying, disks, memory, network, pages, ranges, seed

MIB = 1024**2
GIB = 1024**3


@pytest.mark.parametrize(("size", "verdict"), [(4096, "good"), (16384, "warning"), (65536, "warning")])
def test_page_size(size: int, verdict: str) -> None:
    found = pages.judge(size)
    assert (found.verdict, str(size) in found.found) == (verdict, True)
    assert ("64 KiB" in found.cure) is (size == 65536)


# memory

MEMINFO = """MemTotal:       1000000000 kB
MemAvailable:    {available} kB
HugePages_Total:  {total}
HugePages_Free:   {free}
HugePages_Rsvd:        0
HugePages_Surp:        0
Hugepagesize:       2048 kB
"""


def test_the_huge_pages_of_the_guide_are_worked_out() -> None:
    # 512000 MB in pages of 2 MiB; ten of the 100 that are there are in use by others
    seen = Memory(90 * 2 * MIB, 100 * 2 * MIB, "huge pages")
    found = memory.judge_huge(512000 * MIB, seen, 2 * MIB, 900 * GIB)
    assert found.verdict == "blocker"
    assert found.found == "90 huge pages of 2 MiB free"
    assert found.needed == "256000 for datasystem.shared_memory"
    assert found.cure == "echo 256010 > /proc/sys/vm/nr_hugepages"
    # what cannot be made is not asked for
    assert "lower datasystem.shared_memory: 1024 MiB" in memory.judge_huge(512000 * MIB, seen, 2 * MIB, GIB).cure
    enough = Memory(512000 * MIB, 512000 * MIB, "huge pages")
    assert memory.judge_huge(512000 * MIB, enough, 2 * MIB, 0).verdict == "good"
    # all there, and ten of them in use just now
    taken = Memory(enough.free - 20 * MIB, enough.total, "huge pages")
    found = memory.judge_huge(512000 * MIB, taken, 2 * MIB, 900 * GIB)
    assert (found.verdict, found.refuses) == ("warning", False)
    assert found.cure == "end what uses the others, or echo 256010 > /proc/sys/vm/nr_hugepages"


@given(st.integers(1, 2**40), st.integers(0, 2**20), st.integers(0, 2**20))
def test_after_the_cure_it_is_good(size: int, free: int, used: int) -> None:
    page = 2 * MIB
    found = memory.judge_huge(size, Memory(free * page, (free + used) * page, "huge pages"), page, 2**50)
    assert (found.verdict == "blocker") is ((free + used) * page < size) is found.refuses
    if found.verdict != "good":
        total = int(found.cure.split("echo ")[1].split()[0])
        seen = Memory((total - used) * page, total * page, "huge pages")
        assert memory.judge_huge(size, seen, page, 2**50).verdict == "good"
    else:
        assert free * page >= size


@pytest.mark.parametrize(
    ("free", "total", "verdict", "cure"),
    [
        (200, 400, "good", ""),
        (99, 400, "warning", "end what takes the memory"),
        (10, 50, "blocker", "container more"),
    ],
)
def test_plain_memory(free: int, total: int, verdict: str, cure: str) -> None:
    found = memory.judge_plain(100 * MIB, Memory(free * MIB, total * MIB, "MemAvailable"))
    assert found.verdict == verdict
    assert cure in found.cure


def test_large_shared_memory_wants_huge_pages() -> None:
    assert memory.large(MemoryNeed(21 * GIB)) == []
    assert memory.large(MemoryNeed(500 * GIB, huge=True)) == []
    (found,) = memory.large(MemoryNeed(21 * GIB + 1))
    assert (found.verdict, "huge_pages: true" in found.cure) == ("warning", True)


@pytest.mark.parametrize(
    ("size", "huge", "timeout", "warned"),
    [(500, True, 90.0, 1), (500, True, 600.0, 0), (500, False, 90.0, 0), (21, True, 90.0, 0)],
)
def test_huge_pages_take_their_time(size: int, huge: bool, timeout: float, warned: int) -> None:
    assert verdicts(memory.judge_start(size * GIB, huge, timeout)) == ["warning"] * warned


def test_queues_of_ranks_in_dev_shm() -> None:
    # a container's own default of 64 MB, for one rank of 16 devices
    found = memory.judge_queues([16], 64 * MIB)
    assert found.verdict == "warning"
    assert found.needed == "up to 4000 MiB for the ranks' queues"
    assert "--shm-size=5g" in found.cure
    assert memory.judge_queues([16], 4000 * MIB).verdict == "good"
    assert memory.judge_queues([], 0).verdict == "good"


def meminfo(root: Path, **numbers: int) -> None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/meminfo").write_text(MEMINFO.format(**numbers))
    (root / "dev/shm").mkdir(parents=True, exist_ok=True)


def test_memory_of_a_host(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    meminfo(root, available=65536, total=0, free=0)
    assert verdicts(memory.look(look(tmp_path, root=root)))[0] == "good"
    meminfo(root, available=65535, total=0, free=0)
    assert verdicts(memory.look(look(tmp_path, root=root)))[0] == "warning"
    # a limit of the container counts too
    meminfo(root, available=10**8, total=0, free=0)
    group = root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (root / "proc/self").mkdir()
    (root / "proc/self/cgroup").write_text("0::/\n")
    (root / "proc/self/mountinfo").write_text("30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n")
    (group / "memory.max").write_text(str(50 * MIB))
    (group / "memory.current").write_text("0")
    found = memory.look(look(tmp_path, root=root))[0]
    assert found.verdict == "blocker"
    assert "memory limit of the control group" in found.found
    huge = CLUSTER.replace("shared_memory: 64MB", "shared_memory: 64MB, huge_pages: true")
    meminfo(root, available=10**8, total=40, free=31)
    found = memory.look(look(tmp_path, huge, root=root))[0]
    assert (found.name, found.verdict, found.needed) == ("huge pages", "warning", "32 for datasystem.shared_memory")
    meminfo(root, available=10**8, total=31, free=31)
    found = memory.look(look(tmp_path, huge, root=root))[0]
    assert (found.verdict, found.refuses) == ("blocker", True)
    meminfo(root, available=10**8, total=40, free=32)
    assert memory.look(look(tmp_path, huge, root=root))[0].verdict == "good"
    # a yrnode that runs has taken it
    assert set(verdicts(memory.look(look(tmp_path, huge, root=root, runs=True)))) == {"not here"}
    # a kernel that does not tell
    (root / "proc/meminfo").unlink()
    assert memory.look(look(tmp_path, huge, root=root))[0].verdict == "not here"


# ports

USES = [PortUse(2379, 2379, "etcd's client port", ("etcd",)), PortUse(40000, 40002, "group serve", ("groups",))]


@pytest.mark.parametrize(
    ("low", "high", "reserved", "cure"),
    [
        (32768, 60999, "", "net.ipv4.ip_local_reserved_ports=40000-40002, or"),
        (32768, 60999, "6600,40001\n", "net.ipv4.ip_local_reserved_ports=6600,40001,40000,40002, or"),
        (32768, 60999, "39000-40002\n", None),
        (50000, 60999, "", None),
        (1024, 60999, "", "=2379,40000-40002, or"),
    ],
)
def test_ports_that_clients_may_be_given(low: int, high: int, reserved: str, cure: str | None) -> None:
    found = ranges.judge(USES, low, high, reserved)
    assert found.verdict == ("good" if cure is None else "warning")
    assert (cure or "") in found.cure


@given(st.sets(st.integers(1, 65535), max_size=30))
def test_spans_and_text_are_each_others_inverse(ports: set[int]) -> None:
    text = ranges.text(sorted(ports))
    assert {p for first, last in ranges.spans(text) for p in range(first, last + 1)} == ports


def test_the_range_of_a_host(tmp_path: Path) -> None:
    assert verdicts(ranges.look(look(tmp_path, root=tmp_path))) == ["not here"]
    net = tmp_path / "proc/sys/net/ipv4"
    net.mkdir(parents=True)
    (net / "ip_local_port_range").write_text("6000\t7000\n")
    (found,) = ranges.look(look(tmp_path, root=tmp_path))
    assert "6600-6601 (group serve)" in found.found
    hccl = [PortUse(60000, 60031, "HCCL of decode", ("groups",)), PortUse(6600, 6600, "group decode", ("groups",))]
    assert ranges.judge(hccl, 5000, 60999, "").found.endswith(": 6600 (group decode), 60000-60031 (HCCL of decode)")


# the interface

HERE = {"lo": ("127.0.0.1",), "eth0": ("10.0.0.1",), "eth1": ("10.0.1.1",), "enp67s0f0np0": ()}


@pytest.mark.parametrize(
    ("nic", "address", "verdict", "words"),
    [
        (None, "10.0.0.1", "good", "eth0 with 10.0.0.1"),
        ("eth0", "10.0.0.1", "good", "eth0 with 10.0.0.1"),
        ("eth0", "10.0.1.1", "blocker", "10.0.1.1 is on eth1"),
        ("ib0", "10.0.0.1", "blocker", "there is no ib0"),
        (None, "10.9.9.9", "warning", "no interface has 10.9.9.9"),
        ("eth1", "10.0.1.1", "warning", "eth1 is down"),
        ("lo", "127.0.0.5", "good", "lo with 127.0.0.5"),
    ],
)
def test_interface(nic: str | None, address: str, verdict: str, words: str) -> None:
    found = network.judge("n0", address, nic, HERE, frozenset({"lo", "eth0"}))
    assert (found.verdict, found.found) == (verdict, words)


@pytest.mark.parametrize(
    ("env", "wrong"),
    [
        ({}, None),
        ({"HCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "lo", "HCCL_IF_IP": "10.0.0.1"}, None),
        ({"HCCL_SOCKET_IFNAME": "enp67s0f0"}, None),
        ({"HCCL_SOCKET_IFNAME": "=ib0,ib1", "GLOO_SOCKET_IFNAME": "^docker"}, None),
        ({"VLLM_HOST_IP": "127.0.0.7"}, None),
        ({"HCCL_SOCKET_IFNAME": NIC, "GLOO_SOCKET_IFNAME": NIC}, None),
        ({"GLOO_SOCKET_IFNAME": "ib0"}, "GLOO_SOCKET_IFNAME is ib0"),
        ({"HCCL_IF_IP": "10.0.0.2"}, "HCCL_IF_IP is 10.0.0.2"),
    ],
)
def test_what_ranks_are_told_of_interfaces(env: dict[str, str], wrong: str | None) -> None:
    found = network.told({"rank/serve/0": env, "rank/serve/1": env}, HERE)
    assert verdicts(found) == ([] if wrong is None else ["blocker"])
    if wrong:
        assert found[0].found == f"{wrong}, which this host does not have, for rank/serve/0, rank/serve/1"


# the clock


@pytest.mark.parametrize(
    ("sync", "nodes", "verdict"),
    [
        (clock.Sync(True, 0.002), 8, "good"),
        (clock.Sync(True, 0.9), 8, "warning"),
        (clock.Sync(False, 16.0), 8, "warning"),
        (clock.Sync(False, 16.0), 1, "good"),
        (None, 8, "not here"),
    ],
)
def test_clock(sync: clock.Sync | None, nodes: int, verdict: str) -> None:
    found = clock.judge(sync, nodes)
    assert found.verdict == verdict
    if sync is not None and sync.synchronised:
        assert found.found == (
            "synchronised, estimated error 2 ms" if verdict == "good" else "estimated error 900 ms"
        )


def test_an_error_that_nobody_estimates_is_not_shown() -> None:
    assert clock.judge(clock.Sync(True, 0.0), 8).found == "synchronised"


def test_the_kernel_tells_of_its_clock() -> None:
    read = clock.read()
    if read is None:
        pytest.skip("adjtimex is not allowed here")
    assert 0 <= read.error_s < 100


# file systems

MOUNTS = """22 1 8:1 / / rw - ext4 /dev/vda rw
30 22 0:30 / /data rw,relatime shared:1 - nfs4 server:/x rw
31 22 0:31 / /data/local\\040disk rw - xfs /dev/vdb rw
32 22 0:32 / /run rw - tmpfs tmpfs rw
33 22 0:33 / /run rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/none", "ext4"),
        ("/data/a/b", "nfs4"),
        ("/data/local disk/x", "xfs"),
        ("/run/y", "tmpfs"),
        ("/database", "ext4"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert disks.kind_of(Path(path), disks.mounts(MOUNTS)) == kind


def test_a_remote_file_system_is_told() -> None:
    state, run = Path("/data/state"), Path("/run/y")
    found = disks.judge({"state_dir": (state, "nfs4"), "run_dir": (run, "tmpfs")})
    assert (found.verdict, found.found) == ("warning", "state_dir /data/state is on nfs4")
    assert disks.judge({"state_dir": (state, "ext4"), "run_dir": (run, "overlay")}).verdict == "good"
    assert disks.judge({"state_dir": (state, "")}).verdict == "not here"


def test_a_liveness_file_elsewhere(tmp_path: Path) -> None:
    assert disks.judge_liveness(Path("/etc/liveness")).verdict == "blocker"
    (tmp_path / "file").write_text("")
    assert "cannot be written" in disks.judge_liveness(tmp_path / "file/liveness").found
    assert disks.judge_liveness(tmp_path / "a/b/liveness").verdict == "warning"
    elsewhere = CLUSTER.replace("64MB}", f"64MB, args: {{liveness_check_path: {tmp_path}/x}}}}")
    assert verdicts(disks.look(look(tmp_path, elsewhere))) == ["good", "warning"]
    assert verdicts(disks.look(look(tmp_path))) == ["good"]


# copying


def test_a_variable_that_does_nothing_is_told_with_its_ranks(tmp_path: Path) -> None:
    text = CLUSTER + "env: {DS_H2D_MEMCPY_POLICY: direct, DS_H2D_FFTS_PARALLEL_WORKER_NUM: 4}\n"
    (found,) = copying.look(look(tmp_path, text))
    assert found.verdict == "warning"
    assert found.found.startswith("DS_H2D_FFTS_PARALLEL_WORKER_NUM of rank/serve/0, rank/serve/1: it does nothing")
    assert found.cure == "remove it, or write ffts there"
    assert verdicts(copying.look(look(tmp_path))) == ["good"]


# the seed

SEEDS = """
cluster: c
nodes: {n0: {address: 127.0.0.1, env: N0}, n1: {address: 127.0.0.2}}
groups:
  prefill: {ranks: {n0: 1}, model: m, port: 7000, UNSET kv_connector: {ascend_store: {}}}
  decode: {ranks: {n1: 1}, model: m, port: 7100, kv_connector: {ascend_store: {}}}
bin: {vllm: [python, -m, x]}
"""


@pytest.mark.parametrize(
    ("env", "unset", "verdict", "words"),
    [
        ("{}", "", "good", "PYTHONHASHSEED is 0"),
        ('{PYTHONHASHSEED: "7"}', "", "blocker", "7 for prefill on n0, 0 for decode on n1"),
        ("{PYTHONHASHSEED: random}", "", "blocker", "not fixed for prefill on n0"),
        ("{}", "unset: [PYTHONHASHSEED],", "blocker", "not fixed for prefill on n0"),
        # only the host knows it
        ("{PYTHONHASHSEED: '${SEED}'}", "", "good", "PYTHONHASHSEED is 0"),
    ],
)
def test_one_seed_for_all_ranks(tmp_path: Path, env: str, unset: str, verdict: str, words: str) -> None:
    (found,) = seed.look(look(tmp_path, SEEDS.replace("N0", env).replace("UNSET", unset)))
    assert (found.verdict, found.refuses) == (verdict, False)
    assert words in found.found


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        # another model: no block of one is a block of the other
        ("n0: 1}, model: m", "n0: 1}, model: other", "good"),
        ("n0: 1}, model: m", "n0: 1}, model: other, role: producer, peer: decode", "blocker"),
        ("n0: 1}, model: m", "n0: 1}, model: m", "blocker"),
    ],
)
def test_only_who_shares_blocks_needs_one_seed(tmp_path: Path, old: str, new: str, verdict: str) -> None:
    text = SEEDS.replace(old, new).replace("N0", '{PYTHONHASHSEED: "7"}').replace("UNSET", "")
    if "peer" in new:
        text = text.replace("n1: 1}, model: m", "n1: 1}, model: m, role: consumer, peer: prefill")
    (found,) = seed.look(look(tmp_path, text))
    assert found.verdict == verdict
    # within one group it is compared whatever the others do
    text = text.replace("port: 7100", "port: 7100, devices: {n1: [1]}")
    within = text.replace("ranks: {n0: 1}", "ranks: {n0: 1, n1: 1}")
    assert verdicts(seed.look(look(tmp_path, within))) == ["blocker"]


def test_without_the_external_cache_no_seed_is_needed(tmp_path: Path) -> None:
    text = SEEDS.replace("kv_connector: {ascend_store: {}}", "").replace("N0", "{}").replace("UNSET", "")
    assert verdicts(seed.look(look(tmp_path, text))) == ["not here"]
