"""The datasystem client's copy knobs: out of range or too little is refused, what does nothing is a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from yrnode.config.copying import KNOBS, notes
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
    for value in (least, most or 10**9):
        assert env_faults(f"{knob}: {value}", tmp_path) == []
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


TOGETHER = {
    "DS_H2D_MEMCPY_POLICY: direct, DS_H2D_PARALLEL_WORKER_NUM: 4, DS_H2D_PARALLEL_MIN_BYTES: 1": [],
    # the guides' way back is the number of workers alone
    "DS_H2D_MEMCPY_POLICY: direct, DS_H2D_PARALLEL_WORKER_NUM: 1, DS_H2D_PARALLEL_MIN_BYTES: 1": [],
    "DS_H2D_MEMCPY_POLICY: direct, DS_H2D_FFTS_PARALLEL_WORKER_NUM: 1": [],
    # what does nothing is no fault
    "DS_D2H_PARALLEL_AGGREGATE_NUM: 4": [],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_H2D_PARALLEL_WORKER_NUM: 4": [],
    # pools
    "DS_H2D_MEMCPY_POLICY: direct, DS_DEVICE_ACL_SIZE: 0, DS_HOST_ACL_SIZE: 0": [],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_DEVICE_ACL_SIZE: 0": [
        "DS_DEVICE_ACL_SIZE: ffts stages twice its largest object there; write a size in bytes"
    ],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 0": [
        "DS_HOST_ACL_SIZE: ffts stages what it copies there; write a size in bytes (huge_pages with ffts both ways "
        "needs none)"
    ],
    # without it H2D copies directly
    "DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 0": [],
    "DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1000": [],
    "DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 100000000": [],
    "DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1000": [
        "DS_HOST_ACL_SIZE: a request that goes parallel copies at least 50331648 bytes "
        "(DS_D2H_FFTS_PARALLEL_MIN_BYTES), and DS_HOST_ACL_SIZE has 1000; write a larger pool or a smaller bound, or "
        "DS_D2H_FFTS_PARALLEL_WORKER_NUM: 1"
    ],
    "DS_D2H_MEMCPY_POLICY: ffts, DS_D2H_FFTS_PARALLEL_MIN_BYTES: 2684354561": [
        "DS_D2H_FFTS_PARALLEL_MIN_BYTES: a request that goes parallel copies at least 2684354561 bytes "
        "(DS_D2H_FFTS_PARALLEL_MIN_BYTES), and DS_HOST_ACL_SIZE has 2684354560; write a larger pool or a smaller "
        "bound, or DS_D2H_FFTS_PARALLEL_WORKER_NUM: 1"
    ],
    "DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1000, DS_D2H_FFTS_PARALLEL_MIN_BYTES: 1000": [],
    "DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1000, DS_D2H_FFTS_PARALLEL_WORKER_NUM: 1": [],
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
    assert env_faults(BOTH.replace("H2D_MEMCPY_POLICY: ffts", "H2D_MEMCPY_POLICY: direct"), tmp_path, huge) == [
        "DS_HOST_ACL_SIZE: ffts stages what it copies there; write a size in bytes (only ffts both ways needs none)"
    ]
    assert env_faults("DS_D2H_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 5", tmp_path, huge) == []
    assert env_faults("DS_ENABLE_REMOTE_H2D: 1", tmp_path, huge.replace("}", ", remote_h2d: [0]}")) == []


def test_what_a_script_may_have_set_is_not_judged(tmp_path: Path) -> None:
    env = "DS_D2H_MEMCPY_POLICY: ffts, DS_D2H_FFTS_PARALLEL_MIN_BYTES: 2684354561"
    assert env_faults(env, tmp_path, "env_from: [/x/set_env.sh]\n") == []


def test_what_two_tables_say_together(tmp_path: Path) -> None:
    group = "groups: {g: {ranks: {n0: 1, n1: 1}, model: m, env: {DS_HOST_ACL_SIZE: 0}}}\n"
    text = HEAD.replace("10.0.0.2", "10.0.0.2, env: {DS_D2H_MEMCPY_POLICY: ffts}") + group
    (line,) = faults(text, tmp_path)
    assert line.startswith("3: groups.g.env.DS_HOST_ACL_SIZE: ffts stages")
    # unset is as if not written
    assert faults(text.replace("m, env", "m, unset: [DS_D2H_MEMCPY_POLICY], env"), tmp_path) == []


def env(text: str) -> dict[str, str]:
    return dict(pair.split(": ") for pair in text.split(", "))


@pytest.mark.parametrize(
    ("variables", "huge", "name", "words"),
    [
        ("DS_D2H_PARALLEL_AGGREGATE_NUM: 4", False, "DS_D2H_PARALLEL_AGGREGATE_NUM", "without DS_D2H_PARALLEL_WORK"),
        ("DS_D2H_PARALLEL_MIN_BYTES: 4", False, "DS_D2H_PARALLEL_MIN_BYTES", "it does nothing without"),
        (
            "DS_H2D_MEMCPY_POLICY: ffts, DS_H2D_PARALLEL_WORKER_NUM: 4",
            *(False, "DS_H2D_PARALLEL_WORKER_NUM", "while DS_H2D_MEMCPY_POLICY is ffts; remove it, or write direct"),
        ),
        (
            "DS_D2H_MEMCPY_POLICY: direct, DS_D2H_FFTS_PARALLEL_MIN_BYTES: 4",
            *(False, "DS_D2H_FFTS_PARALLEL_MIN_BYTES", "it does nothing while DS_D2H_MEMCPY_POLICY is direct"),
        ),
        ("DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 0", False, "DS_HOST_ACL_SIZE", "H2D copies directly"),
        ("DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 0", True, "DS_HOST_ACL_SIZE", "H2D copies directly"),
        ("DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1000", False, "DS_HOST_ACL_SIZE", "at least 134217728 bytes"),
        (
            "DS_H2D_MEMCPY_POLICY: ffts, DS_H2D_FFTS_PARALLEL_MIN_BYTES: 2684354561",
            *(False, "DS_H2D_FFTS_PARALLEL_MIN_BYTES", "DS_HOST_ACL_SIZE has 2684354560"),
        ),
    ],
)
def test_what_does_nothing_or_is_done_another_way_is_a_note(
    variables: str, huge: bool, name: str, words: str
) -> None:
    ((said, text),) = notes(env(variables), huge)
    assert said == name
    assert words in text
    assert "; " in text


@pytest.mark.parametrize(
    ("variables", "huge"),
    [
        ("DS_H2D_MEMCPY_POLICY: direct, DS_H2D_PARALLEL_WORKER_NUM: 4, DS_H2D_PARALLEL_MIN_BYTES: 1", False),
        # the guides' ways back
        ("DS_H2D_MEMCPY_POLICY: direct, DS_H2D_PARALLEL_WORKER_NUM: 1, DS_H2D_PARALLEL_MIN_BYTES: 1", False),
        ("DS_H2D_MEMCPY_POLICY: direct, DS_H2D_FFTS_PARALLEL_WORKER_NUM: 1", False),
        ("DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1000, DS_H2D_FFTS_PARALLEL_WORKER_NUM: 1", False),
        # the SDK's own way of copying is not known here
        ("DS_D2H_FFTS_PARALLEL_WORKER_NUM: 4", False),
        (BOTH, True),
        # what a script has set may be anything
        ("DS_H2D_MEMCPY_POLICY: ffts, DS_HOST_ACL_SIZE: 1G, DS_H2D_PARALLEL_MIN_BYTES: x", False),
    ],
)
def test_nothing_to_note(variables: str, huge: bool) -> None:
    assert notes(env(variables), huge) == []
