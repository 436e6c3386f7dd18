"""Debian's prometheus and promtool, and what expressions name of yrnode's metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from tests.support.etcd import PARTS

PACKAGING = Path(__file__).parents[2] / "packaging"
ALERTS = PACKAGING / "prometheus/alerts.yaml"
ALERTS_TEST = PACKAGING / "prometheus/alerts_test.yaml"
SCRAPE = PACKAGING / "prometheus/scrape.yaml"
DASHBOARD = PACKAGING / "grafana/yrnode.json"


def load(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def find(program: str) -> str:
    return next((str(p) for p in (PARTS / program, Path("/usr/bin", program)) if p.exists()), "")


PROMETHEUS, PROMTOOL = find("prometheus"), find("promtool")
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed (Debian: prometheus)")
needs_prometheus = pytest.mark.skipif(not PROMETHEUS, reason="prometheus is not installed (Debian: prometheus)")


def alerts() -> dict[str, dict[str, Any]]:
    """The rules by the alert's name."""
    rules = [r for g in load(ALERTS)["groups"] for r in g["rules"]]
    found = {r["alert"]: r for r in rules}
    assert len(found) == len(rules)
    return found


def expressions() -> list[str]:
    """All of the alerts and of the dashboard, its variables included."""
    board = json.loads(DASHBOARD.read_text())
    shown = [t["expr"] for p in board["panels"] for t in p.get("targets", ())]
    variables = [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    return [*(r["expr"] for r in alerts().values()), *shown, *variables]


def unknown(expression: str, page: str) -> list[str]:
    """What an expression names that a /metrics page does not have: metrics, and labels of those with samples."""
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(page):
        if family.type == "histogram":
            labels.update({f"{family.name}{end}": set() for end in ("_bucket", "_sum", "_count")})
        else:
            labels[family.name + ("_total" if family.type == "counter" else "")] = set()
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    found = []
    for name, matchers in re.findall(r"(yrnode_\w+)(?:\{([^}]*)\})?", expression):
        if name not in labels:
            found.append(name)
        elif labels[name]:
            asked = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', matchers)
            found += [f"{name}{{{label}}}" for label in asked if label not in labels[name]]
    return found
