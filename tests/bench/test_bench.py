"""The harness of `make bench`: what it says of samples, and that it says it of everything that was promised."""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import __main__ as bench
from bench import alarms, groups, growth
from bench.contract import CONTRACT, LINES, chosen
from bench.result import Peer, Row, peer, percentile
from bench.supervised import LATE_S, Took
from bench.table import table
from tests.support.node import cluster_text

KEYS = ["name", "value", "unit", "n", "p50", "p99", "target", "met", "peer", "peer_value", "ratio"]


@pytest.mark.parametrize(
    ("samples", "share", "is_"),
    [
        ([7.0], 0.5, 7.0),
        ([7.0], 0.99, 7.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        ([4.0, 1.0, 3.0, 2.0], 0.51, 3.0),
        (list(map(float, range(1, 101))), 0.99, 99.0),
        (list(map(float, range(1, 102))), 0.99, 100.0),
        (list(map(float, range(1, 201))), 0.99, 198.0),
        ([1.0, 2.0], 1.0, 2.0),
    ],
)
def test_percentiles_are_samples_by_nearest_rank(samples: list[float], share: float, is_: float) -> None:
    assert percentile(samples, share) == is_


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_has_its_share_below(samples: list[float], share: float) -> None:
    found = percentile(samples, share)
    assert found in samples
    assert sum(x <= found for x in samples) >= share * len(samples) - 1e-6
    assert sum(x < found for x in samples) < share * len(samples) + 1e-6


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_a_row_is_judged_by_its_own_statistic() -> None:
    # ninety-nine good ones and one bad: fine for p99, not for the worst
    good = Row("child-death-seen", (*[1.0] * 99, 50.0))
    assert (good.value, good.met) == (1.0, True)
    bad = Row("cold-start", (*[0.5] * 99, 1.5))
    assert (bad.value, bad.met) == (1.5, False)


@pytest.mark.parametrize(
    ("name", "value", "met"),
    [
        ("child-death-seen", 10.0, False),  # the target is "below"
        ("false-alarms", 0.0, True),
        ("false-alarms", 1.0, False),
        ("node-loss-seen", 6.0, True),
        ("engine-freeze-seen-spinning", 3.0, None),
    ],
)
def test_the_edge_of_a_target(name: str, value: float, met: bool | None) -> None:
    assert Row(name, (value,)).met is met


def test_a_row_as_json() -> None:
    row = Row("respawn", (10.0, 20.0, 30.0), (Peer("a", why="not here"), Peer("b", 2000.0, 5), Peer("c", 1000.0, 5)))
    got = row.json()
    assert list(got)[: len(KEYS)] == KEYS
    assert {k: got[k] for k in KEYS} == {
        "name": "respawn",
        "value": 20.0,
        "unit": "ms",
        "n": 3,
        "p50": 20.0,
        "p99": 30.0,
        "target": 50,
        "met": True,
        # the best of them is whom to beat
        "peer": "c",
        "peer_value": 1000.0,
        "ratio": 50.0,
    }
    assert got["peers"][0] == {"name": "a", "value": None, "n": 0, "why": "not here"}


def test_what_could_not_be_measured_is_null() -> None:
    got = Row("livez", (), (peer("supervisord", [], 0.5, "not installed"),)).json()
    assert [got[k] for k in KEYS[1:]] == [None, "ms", 0, None, None, 5, None, "supervisord", None, None]
    assert got["peers"][0]["why"] == "not installed"


def test_a_ratio_of_nothing_is_null() -> None:
    assert Row("false-alarms", (0.0,), (Peer("probe", 3.0, 1),)).json()["ratio"] is None


def test_the_table_has_a_line_for_each_row_and_the_reasons_below() -> None:
    rows = [Row("livez", (1.5, 2.5)), Row("respawn", (), (Peer("x", why="no such program"),), note="timed out")]
    head, first, second, _, *notes = table(rows).splitlines()
    assert head.split()[:3] == ["name", "value", "stat"]
    assert first.split()[:11] == ["livez", "2.5", "ms", "worst", "of", "2", "2", "1.5", "2.5", "<", "5"]
    assert second.split()[:2] == ["respawn", "-"]
    assert notes == ["respawn: timed out", "respawn: x: no such program"]


def test_everything_that_was_promised_is_measured_by_somebody() -> None:
    gives = [name for _, names in bench.MEASURES for name in names]
    assert sorted(gives) == sorted(LINES)


def test_the_targets_are_those_of_the_design() -> None:
    assert {line.name: (line.target, line.unit, line.stat) for line in CONTRACT} == {
        "child-death-seen": (10, "ms", "p99"),
        "adopted-death-seen": (10, "ms", "p99"),
        "respawn": (50, "ms", "p50"),
        "worker-freeze-seen": (5, "s", "worst"),
        "engine-freeze-seen": (60, "s", "worst"),
        "false-alarms": (0, "count", "worst"),
        "group-stop-8": (50, "ms", "p99"),
        "group-stop-256": (500, "ms", "p99"),
        "go-8": (200, "ms", "p99"),
        "node-loss-seen": (6, "s", "worst"),
        "livez": (5, "ms", "p99"),
        "metrics": (20, "ms", "p99"),
        "idle-rss": (60, "MiB", "worst"),
        "idle-cpu": (1, "% of a core", "worst"),
        "cold-start": (1, "s", "worst"),
    }


def test_one_name_brings_its_variants_and_no_other_row_of_the_contract() -> None:
    assert chosen("respawn") == {"respawn", "respawn-100", "respawn-adopted", "respawn-adopted-100"}
    assert chosen("respawn-100") == {"respawn-100"}
    assert chosen("") == set(LINES)


def test_a_wrong_name_is_one_line_and_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert bench.main(["--only", "nothing", "--out", str(tmp_path / "b.json")]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert "livez" in err
    assert not list(tmp_path.iterdir())


def test_one_that_fails_leaves_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "b.json"
    kept: list[str] = []

    def broken(wanted: Set[str]) -> Iterator[Row]:
        yield Row("idle-rss", (50.0,))
        # what comes before the failure is written by then
        kept.extend(r["name"] for r in json.loads(out.read_text()))
        yield Row("idle-rss", (50.0, 60.0))
        raise TimeoutError("it never came")

    def good(wanted: Set[str]) -> Iterator[Row]:
        yield Row("go-8", (1.0,))

    monkeypatch.setattr(bench, "MEASURES", ((broken, ("idle-rss", "livez")), (good, ("go-8",))))
    assert bench.main(["--out", str(out)]) == 1
    rows = json.loads(out.read_text())
    assert kept == ["idle-rss"]
    assert [(r["name"], r["value"]) for r in rows] == [("idle-rss", 60.0), ("livez", None), ("go-8", 1.0)]
    assert "it never came" in rows[1]["note"]
    about = json.loads(out.with_suffix(".about.json").read_text())["about"]
    assert {"date", "machine", "cores", "python", "yrnode", "etcd", "load_before", "load_after"} <= set(about)
    assert "go-8" in capsys.readouterr().out
    assert {"memory_mib", "kernel", "peers"} <= set(about)


def test_one_name_asks_for_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Set[str]] = []

    def measure(wanted: Set[str]) -> Iterator[Row]:
        asked.append(wanted)
        yield Row("livez", (1.0,))
        yield Row("idle-cpu", (1.0,))

    monkeypatch.setattr(bench, "MEASURES", ((measure, ("idle-cpu", "livez")), (measure, ("go-8",))))
    assert bench.main(["--only", "livez", "--out", str(tmp_path / "b.json")]) == 0
    assert asked == [{"livez"}]
    assert [r["name"] for r in json.loads((tmp_path / "b.json").read_text())] == ["livez"]


@pytest.mark.parametrize(
    ("name", "n", "stat"),
    [("livez", 99, "worst of 99"), ("livez", 100, "p99"), ("livez", 0, "p99"), ("respawn", 3, "p50")],
)
def test_a_p99_of_few_says_what_it_is(name: str, n: int, stat: str) -> None:
    row = Row(name, tuple(map(float, range(n))))
    assert (row.stat, row.json()["stat"]) == (stat, stat)
    assert row.stat in table([row])


def test_all_checks_of_a_node_are_made_faster_by_the_same(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    text = cluster_text()
    file.write_text(text)
    own = alarms.specs(file)
    file.write_text(text + alarms.faster(own) + "\n")
    fast = alarms.specs(file)
    assert {n for n, _ in own.items()} == set(fast) > {"etcd read", "worker kv", "rank/serve/0 health"}
    for name, (kind, check) in own.items():
        base = "idle_s" if "idle_s" in check.params else ""
        before = check.params[base] if base else check.period_s
        after = fast[name][1].params[base] if base else fast[name][1].period_s
        kept = f"{kind}.{check.name}" in alarms.KEEP
        assert after == pytest.approx(before if kept else before / alarms.FASTER), name
        # nothing else is made easier or harder
        assert fast[name][1].failures == check.failures
        assert fast[name][1].timeout_s == check.timeout_s


def test_the_hours_are_those_of_the_check_that_ran_least(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(cluster_text())
    kind, check = alarms.specs(file)["etcd process"]
    fast = {n: (kind, replace(check, period_s=p / alarms.FASTER)) for n, p in {"a x": 1.0, "b y": 5.0}.items()}
    before = {n: {"runs": 10, "unknowns": 1, "failing": 0} for n in fast}
    # the second has begun anew meanwhile
    after = {"a x": {"runs": 3610, "unknowns": 37, "failing": 0}, "b y": {"runs": 9, "unknowns": 0, "failing": 0}}
    hours, least, unknown = alarms.worth(before, after, fast)
    assert (hours, least, unknown) == (pytest.approx(45 / 3600), "b y, n 9", pytest.approx(36 / 3609))


@pytest.mark.parametrize(
    ("before", "now", "is_"),
    [(0.5, 0.5, True), (0.5, 0.3, False), (0.01, 0.04, True), (2.0, 2.0, False), (1.5, 1.4, False), (0.7, 0.6, True)],
)
def test_two_seconds_alike_are_quiet_unless_they_take_much(before: float, now: float, is_: bool) -> None:
    assert groups.steady(before, now, 2) is is_


def test_growth_that_was_not_judged_is_told() -> None:
    shown = growth._row("shown", "ms", {8: 1.0}, None)
    assert growth.unjudged([growth._row("one size", "ms", {8: 1.0}), shown]) == ["one size"]
    assert growth.unjudged([growth._row("two", "ms", {8: 1.0, 16: 2.0}), growth._row("x", "ms", {})]) == ["x"]


def test_a_death_that_we_say_nothing_of_is_a_sample_of_the_limit() -> None:
    took = Took(seen=[3.0, 4.0], again=[20.0, 21.0, 22.0], unsaid=1)
    assert took.held == (3.0, 4.0, LATE_S * 1000)
    assert took.note == "of 1 deaths nothing was said"
