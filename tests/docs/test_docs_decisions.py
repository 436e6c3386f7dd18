"""The pages for operators name what there is: checks with their figures, reasons, states, alerts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from yrnode.components import node as components
from yrnode.components.checks import NAMES
from yrnode.config.cluster import Cluster
from yrnode.config.load import validate
from yrnode.config.yaml import parse
from yrnode.model.cause import FAULTS, Reason
from yrnode.model.spec import CheckSpec
from yrnode.model.state import State
from yrnode.policy.group import Budget
from yrnode.policy.restart import RestartPolicy, backoff

DOCS = Path(__file__).resolve().parents[2] / "docs"
DECIDES = (DOCS / "how-it-decides.md").read_text("utf-8")
FAILURES = (DOCS / "failures.md").read_text("utf-8")
RUNBOOK = (DOCS / "runbook.md").read_text("utf-8")
RULES = DOCS.parent / "packaging/prometheus/alerts.yaml"
TEXT = b"""
cluster: t
nodes: {n0: {address: 127.0.0.1}, n1: {address: 127.0.0.2}, n2: {address: 127.0.0.3}}
etcd: {nodes: [n0, n1, n2]}
groups: {serve: {ranks: {n0: 1}, model: m, kv_connector: {ascend_store: {}}}}
router: {node: n0, kind: command, argv: [r]}
"""


@pytest.fixture(scope="module")
def checks() -> dict[str, CheckSpec]:
    """Every check that there is, by the name that the cluster file has for it."""
    cluster: Cluster = validate(parse(TEXT, "t.yaml"), Path("/"))
    specs = components.specs(components.host_of(cluster, "n0", {}))
    return {f"{spec.kind}.{check.name}": check for spec in specs for check in spec.checks}


def rows() -> dict[str, list[str]]:
    found = re.findall(r"^\| `([a-z]+\.[a-z]+)` \| (.*) \|$", DECIDES, re.MULTILINE)
    return {name: rest.split(" | ") for name, rest in found}


def test_every_check_has_a_row(checks: dict[str, CheckSpec]) -> None:
    assert set(checks) == {f"{kind}.{name}" for kind, names in NAMES.items() for name in names}
    assert set(rows()) == set(checks)


def test_the_figures_are_those_of_the_code(checks: dict[str, CheckSpec]) -> None:
    for name, (period, timeout, failures, *_) in rows().items():
        check = checks[name]
        own = check.kind in ("canary", "retrieval")
        period_s = check.params["idle_s"] if own else check.period_s
        timeout_s = check.params["answer_s"] if own else check.timeout_s
        assert (period, timeout, failures) == (f"{period_s:g} s", f"{timeout_s:g} s", str(check.failures)), name


def test_what_a_check_may_do_is_said_as_it_is(checks: dict[str, CheckSpec]) -> None:
    for name, (*_, alone, _text) in rows().items():
        check = checks[name]
        acts = check.act and check.watch and not check.witness
        said = "restart" if acts else "witness" if check.witness else "start only" if not check.watch else "tells"
        assert alone == said, name


def test_every_reason_and_every_state_is_explained() -> None:
    told = {name: counts for name, counts in re.findall(r"^\| `([a-z-]+)` \| (yes|no) \|", DECIDES, re.MULTILINE)}
    assert told == {r.value: "yes" if r in FAULTS else "no" for r in Reason}
    assert set(re.findall(r"^- `([a-z]+)`: ", DECIDES, re.MULTILINE)) == {s.value for s in State}


def test_how_often_something_restarts_is_said_as_it_is() -> None:
    own, group = RestartPolicy(), Budget()
    waits = [f"{backoff(n, 0.0, own):g}" for n in range(2, own.budget + 1)]
    said = f"at once, then after {', '.join(waits[:-1])} and {waits[-1]} s"
    assert (
        f"- etcd, worker, router: {said}. More than {own.budget} faults in {own.window_s / 60:g} minutes" in DECIDES
    )
    assert said in FAILURES
    (wait,) = [f"{backoff(n, 0.0, own):g}" for n in range(2, group.faults)]
    assert f"- A group: at once, then after {wait} s; `failed` with the third fault in a row" in DECIDES
    assert f"A group: at once, then after {wait} s; with the third fault in a row" in FAILURES
    for forgiven_s in (own.forgive_after_s, group.forgive_after_s):
        assert DECIDES.count(f"{forgiven_s / 60:g} minutes of being ready start the ") == 2


def test_every_section_says_what_it_means_where_to_look_and_what_to_do() -> None:
    sections = re.findall(r"^## (Yrnode\w+)\n(.*?)(?=^#)", RUNBOOK, re.MULTILINE | re.DOTALL)
    assert sections
    for name, text in sections:
        assert "**Means:**" in text, name
        assert ("**Look:**" in text and "**Do:**" in text) or "**Look and do:**" in text, name


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    sections = sorted(re.findall(r"^## (Yrnode\w+)$", RUNBOOK, re.MULTILINE))
    assert sections == sorted(re.findall(r"^ *- alert: (\w+)", RULES.read_text("utf-8"), re.MULTILINE))
