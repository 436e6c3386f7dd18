"""The datasystem client's copy knobs: what is out of range, does nothing, or cannot be enough is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from yrnode.config.copying import KNOBS
from yrnode.config.load import load
from yrnode.model.errors import UsageError

HEAD = "cluster: demo\nnodes: {n0: {address: 10.0.0.1}, n1: {address: 10.0.0.2}}\n"
GROUP = "groups: {g: {ranks: {n0: 1, n1: 1}, model: m}}\n"


def faults(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    try:
        load(path)
    except UsageError as e:
        return [line.removeprefix(f"{path}:") for line in e.lines]
    return []


def env_faults(env: str, tmp_path: Path, more: str = "") -> list[str]:
    """The lines of a file whose line 4 is `env`."""
    found = faults(f"{HEAD}{GROUP}env: {{{env}}}\n{more}", tmp_path)
    assert all(line.startswith("4: env.") for line in found), found
    return [line.removeprefix("4: env.") for line in found]


RANGES = {
    "PARALLEL_WORKER_NUM": (1, 16),
    "PARALLEL_AGGREGATE_NUM": (1, 4096),
    "PARALLEL_MAX_PENDING_TASK_NUM": (1, 64),
    "PARALLEL_MIN_BYTES": (0, None),
    "PARALLEL_MAX_INFLIGHT_BATCH_NUM": (1, None),
    "FFTS_PARALLEL_WORKER_NUM": (1, 16),
    "FFTS_PARALLEL_MIN_BYTES": (0, None),
}


def test_the_table_has_every_knob_of_the_guides() -> None:
    assert {side: list(knobs) for side, knobs in KNOBS.items()} == {
        side: [f"DS_{side}_{name}" for name in RANGES] for side in ("H2D", "D2H")
    }


@pytest.mark.parametrize("side", ["H2D", "D2H"])
@pytest.mark.parametrize("name", RANGES)
def test_a_number_out_of_its_range_is_refused(side: str, name: str, tmp_path: Path) -> None:
    least, most = RANGES[name]
    knob = f"DS_{side}_{name}"
    range_ = f"from {least} to {most}" if most is not None else f"of {least} or more"
    for value in (least - 1, "x", "", "1.5", "٣", *([most + 1] if most else [])):
        expected = [f'{knob}: "{value}" is out of range; write a whole number {range_}']
        assert env_faults(f"{knob}: '{value}'", tmp_path) == expected
    workers = f", DS_{side}_PARALLEL_WORKER_NUM: 4" if name.startswith("PARALLEL_") and "WORKER" not in name else ""
    pool = "" if name != "FFTS_PARALLEL_MIN_BYTES" else f", DS_HOST_ACL_SIZE: {10**9}"
    for value in (least, most or 10**9):
        assert env_faults(f"{knob}: {value}{workers}{pool}", tmp_path) == []
    assert env_faults(f"{knob}: '${{HERE}}'", tmp_path) == []


@pytest.mark.parametrize(
    ("table", "line", "key"),
    [
        ("nodes: {n0: {address: 10.0.0.1, env: {E}}}\n" + GROUP.replace(", n1: 1", ""), 2, "nodes.n0.env"),
        ("nodes: {n0: {address: 10.0.0.1}}\ngroups: {g: {ranks: {n0: 1}, model: m, env: {E}}}\n", 3, "groups.g.env"),
        (
            "nodes: {n0: {address: 10.0.0.1}}\ngroups: {g: {ranks: {n0: 1}, model: m, nodes: {n0: {env: {E}}}}}\n",
            *(3, "groups.g.nodes.n0.env"),
        ),
    ],
)
def test_every_table_of_variables_is_looked_at(table: str, line: int, key: str, tmp_path: Path) -> None:
    text = "cluster: demo\n" + table.replace("{E}", "{DS_H2D_MEMCPY_POLICY: copy, DS_DEVICE_ACL_SIZE: 1G}")
    assert faults(text, tmp_path) == [
        f'{line}: {key}.DS_H2D_MEMCPY_POLICY: "copy" is no way to copy; write direct or ffts',
        f'{line}: {key}.DS_DEVICE_ACL_SIZE: "1G" is out of range; write a whole number of 0 or more',
    ]


NOTHING = "it does nothing"
TOGETHER = {
    "DS_H2D_MEMCPY_POLICY: direct, DS_H2D_PARALLEL_WORKER_NUM: 4, DS_H2D_PARALLEL_MIN_BYTES: 1": [],
    # the guides' way back is the number of workers alone
    "DS_H2D_MEMCPY_POLICY: direct, DS_H2D_PARALLEL_WORKER_NUM: 1, DS_H2D_PARALLEL_MIN_BYTES: 1": [],
    # the SDK's own way of copying is not known here
    "DS_D2H_FFTS_PARALLEL_WORKER_NUM: 4": [],
    "DS_D2H_PARALLEL_AGGREGATE_NUM: 4": [
        f"DS_D2H_PARALLEL_AGGREGATE_NUM: {NOTHING} without DS_D2H_PARALLEL_WORKER_NUM; write a number above 1 for "
        "that, or remove this"
    ],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_D2H_MEMCPY_POLICY: direct, DS_H2D_PARALLEL_WORKER_NUM: 4": [
        f"DS_H2D_PARALLEL_WORKER_NUM: {NOTHING} while env.DS_H2D_MEMCPY_POLICY is ffts; remove it, or write direct "
        "there"
    ],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_D2H_MEMCPY_POLICY: direct, DS_D2H_FFTS_PARALLEL_MIN_BYTES: 4": [
        f"DS_D2H_FFTS_PARALLEL_MIN_BYTES: {NOTHING} while env.DS_D2H_MEMCPY_POLICY is direct; remove it, or write "
        "ffts there"
    ],
    # pools
    "DS_H2D_MEMCPY_POLICY: direct, DS_DEVICE_ACL_SIZE: 0, DS_HOST_ACL_SIZE: 0": [],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_DEVICE_ACL_SIZE: 0": [
        "DS_DEVICE_ACL_SIZE: ffts stages twice its largest object there; write a size in bytes"
    ],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 0": [
        "DS_HOST_ACL_SIZE: ffts stages what it copies there; write a size in bytes (huge_pages with ffts both ways "
        "needs none)"
    ],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 100000000": [
        "DS_HOST_ACL_SIZE: a request that goes parallel copies at least 134217728 bytes "
        "(DS_H2D_FFTS_PARALLEL_MIN_BYTES), and DS_HOST_ACL_SIZE has 100000000; write a larger pool or a smaller "
        "bound, or DS_H2D_FFTS_PARALLEL_WORKER_NUM: 1"
    ],
    "DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 100000000": [],
    "DS_D2H_MEMCPY_POLICY: ffts, DS_D2H_FFTS_PARALLEL_MIN_BYTES: 2684354561": [
        "DS_D2H_FFTS_PARALLEL_MIN_BYTES: a request that goes parallel copies at least 2684354561 bytes "
        "(DS_D2H_FFTS_PARALLEL_MIN_BYTES), and DS_HOST_ACL_SIZE has 2684354560; write a larger pool or a smaller "
        "bound, or DS_D2H_FFTS_PARALLEL_WORKER_NUM: 1"
    ],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1000, DS_H2D_FFTS_PARALLEL_MIN_BYTES: 1000": [],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1000, DS_H2D_FFTS_PARALLEL_WORKER_NUM: 1": [],
    "DS_ENABLE_REMOTE_H2D: 0": [],
    "DS_ENABLE_REMOTE_H2D: 1": [
        "DS_ENABLE_REMOTE_H2D: the workers have no device for it; write datasystem.remote_h2d, from which this "
        "follows, or remove it"
    ],
    "DS_ENABLE_REMOTE_H2D: true": ['DS_ENABLE_REMOTE_H2D: "true" is out of range; write a whole number from 0 to 1'],
}


@pytest.mark.parametrize(("env", "expected"), TOGETHER.items(), ids=list(TOGETHER))
def test_what_variables_say_together(env: str, expected: list[str], tmp_path: Path) -> None:
    assert env_faults(env, tmp_path) == expected


BOTH = "DS_H2D_MEMCPY_POLICY: ffts, DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 0"


def test_huge_pages_need_no_staging_on_the_host(tmp_path: Path) -> None:
    huge = "datasystem: {huge_pages: true}\n"
    assert env_faults(BOTH, tmp_path, huge) == []
    assert env_faults(BOTH.replace("D2H_MEMCPY_POLICY: ffts", "D2H_MEMCPY_POLICY: direct"), tmp_path, huge) == [
        "DS_HOST_ACL_SIZE: ffts stages what it copies there; write a size in bytes (only ffts both ways needs none)"
    ]
    assert env_faults("DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 5", tmp_path, huge) == []
    assert env_faults("DS_ENABLE_REMOTE_H2D: 1", tmp_path, huge.replace("}", ", remote_h2d: [0]}")) == []


def test_a_knob_and_the_policy_that_idles_it_may_stand_in_two_tables(tmp_path: Path) -> None:
    group = "groups: {g: {ranks: {n0: 1, n1: 1}, model: m, env: {DS_H2D_PARALLEL_WORKER_NUM: 2}}}\n"
    text = HEAD.replace("10.0.0.2", "10.0.0.2, env: {DS_H2D_MEMCPY_POLICY: ffts}") + group
    assert faults(text, tmp_path) == [
        "3: groups.g.env.DS_H2D_PARALLEL_WORKER_NUM: it does nothing while nodes.n1.env.DS_H2D_MEMCPY_POLICY is "
        "ffts; remove it, or write direct there"
    ]
    # unset is as if not written
    assert faults(text.replace("m, env", "m, unset: [DS_H2D_MEMCPY_POLICY], env"), tmp_path) == []
