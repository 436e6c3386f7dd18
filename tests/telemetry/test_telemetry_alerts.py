"""The alerts and the dashboard that the package brings: well formed, tested by promtool, and complete."""

import json
import subprocess

import pytest

from tests.support.prometheus import (
    ALERTS_TEST,
    DASHBOARD,
    PROMTOOL,
    SCRAPE,
    alerts,
    expressions,
    load,
    needs_promtool,
    unknown,
)

PAGE = """# TYPE yrnode_peer_up gauge
# TYPE yrnode_store_available gauge
yrnode_store_available{node="n0"} 1
# TYPE yrnode_restarts_total counter
yrnode_restarts_total{node="n0",reason="hang"} 0
# TYPE yrnode_round_seconds histogram
"""


def promtool(*words):
    return subprocess.run([PROMTOOL, *words], capture_output=True, text=True, timeout=60, check=False)


@needs_promtool
def test_every_rule_test_passes():
    done = promtool("test", "rules", str(ALERTS_TEST))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_example_loads_the_alerts():
    done = promtool("check", "config", str(SCRAPE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


def test_every_alert_is_expected_to_fire_in_a_rule_test():
    said = set()
    for test in load(ALERTS_TEST)["tests"]:
        said |= {t["alertname"] for t in test.get("alert_rule_test", ()) if t.get("exp_alerts")}
        labels = [s["labels"] for t in test.get("promql_expr_test", ()) for s in t["exp_samples"]]
        said |= {name for name in alerts() for text in labels if f'"{name}"' in text}
    assert said == set(alerts())


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_what_whoever_is_woken_needs(name):
    rule = alerts()[name]
    told = rule["annotations"]
    assert name.startswith("Yrnode")
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert told["runbook"] == f"docs/runbook.md#{name.lower()}"
    assert set(told) == {"summary", "description", "runbook"}
    # what is woken for can be found: a node, a group or a version of one
    where = ("$labels.node", "$labels.group", "$labels.peer", "$labels.instance")
    assert name == "YrnodeNotScraped" or any(w in told["summary"] + told["description"] for w in where)


def test_the_dashboard_has_an_expression_in_every_panel():
    board = json.loads(DASHBOARD.read_text())
    panels = [p for p in board["panels"] if p["type"] != "row"]
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])
    assert all(t["expr"] for p in panels for t in p["targets"])
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
    assert len(expressions()) > len(alerts()) + len(panels)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("yrnode_peer_up == 0", []),
        ('yrnode_store_available{node=~"$node"} == 0', []),
        ('increase(yrnode_restarts_total{reason!~"a|b"}[1h])', []),
        ("rate(yrnode_round_seconds_bucket[5m])", []),
        ("yrnode_restarts", ["yrnode_restarts"]),
        ("yrnode_round_seconds", ["yrnode_round_seconds"]),
        ('yrnode_store_available{cause="x"}', ["yrnode_store_available{cause}"]),
    ],
)
def test_what_a_page_does_not_have_is_seen(expression, expected):
    assert unknown(expression, PAGE) == expected
