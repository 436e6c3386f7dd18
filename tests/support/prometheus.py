"""Debian's prometheus and promtool, and what expressions name of yrnode's metrics."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from tests.support.etcd import PARTS, free_port

_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
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


QUICK = "1s"
"""Between two scrapes, and instead of each `for:` of an alert: a drill need not last for minutes. What an alert asks
stays as it is."""


def quickened() -> dict[str, Any]:
    """The packaged rules with `for: 1s` wherever they wait at all."""
    rules = load(ALERTS)
    for group in rules["groups"]:
        group["rules"] = [{**r, "for": QUICK} if "for" in r else r for r in group["rules"]]
    return rules


class Prometheus:
    """A real one that loads `quickened()` and scrapes whom `targets` names, so often. `url`: where it listens."""

    def __init__(self, where: Path, scrape: str = QUICK) -> None:
        self.dir = where
        self.url = f"http://127.0.0.1:{free_port()}"
        self._targets = where / "targets.json"
        self.targets({})
        # JSON is YAML
        (where / "rules.yaml").write_text(json.dumps(quickened()))
        job = {"job_name": "yrnode", "honor_labels": True, "file_sd_configs": [{"files": [str(self._targets)]}]}
        times = {"scrape_interval": scrape, "scrape_timeout": scrape, "evaluation_interval": QUICK}
        config = {"global": times, "rule_files": [str(where / "rules.yaml")], "scrape_configs": [job]}
        (where / "prometheus.yaml").write_text(json.dumps(config))

    def targets(self, nodes: Mapping[str, str]) -> None:
        """By node, its host:port. Taken in place of those before within a second or so."""
        text = json.dumps([{"targets": [api], "labels": {"node": node}} for node, api in nodes.items()])
        whole = self.dir / "targets.new"
        whole.write_text(text)
        whole.rename(self._targets)

    def _get(self, path: str) -> Any:
        with _OPEN(self.url + path, timeout=5) as response:
            return json.load(response)["data"]

    def firing(self) -> list[dict[str, str]]:
        """The labels of each alert that fires."""
        try:
            found = self._get("/api/v1/alerts")["alerts"]
        except OSError:
            return []
        return [a["labels"] for a in found if a["state"] == "firing"]

    def names(self) -> set[str]:
        return {labels["alertname"] for labels in self.firing()}

    def wait(self, name: str, seconds: float = 60.0, **labels: str) -> None:
        """Until the alert fires with these labels."""
        wanted = {"alertname": name, **labels}.items()
        deadline = time.monotonic() + seconds
        while not any(wanted <= fired.items() for fired in self.firing()):
            assert time.monotonic() < deadline, f"{name} {labels} does not fire; what does: {self.firing()}"
            time.sleep(0.1)

    def wait_quiet(self, *but: str, seconds: float = 60.0) -> None:
        """Until nothing fires, `but` for what may; and the loop's own, which a start on a busy machine makes late."""
        deadline = time.monotonic() + seconds
        while left := self.names() - {*but, "YrnodeLoopSlow"}:
            assert time.monotonic() < deadline, f"still firing: {sorted(left)}"
            time.sleep(0.1)


@contextlib.contextmanager
def prometheus(scrape: str = QUICK) -> Iterator[Prometheus]:
    with tempfile.TemporaryDirectory(prefix="yrp-", dir="/tmp") as directory:
        where = Path(directory)
        server = Prometheus(where, scrape)
        words = [
            f"--config.file={where / 'prometheus.yaml'}",
            f"--storage.tsdb.path={where / 'data'}",
            f"--web.listen-address={server.url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        with open(where / "log", "wb") as out:
            child = subprocess.Popen([PROMETHEUS, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            server.wait("YrnodeNotScraped")
            yield server
        except AssertionError as e:
            raise AssertionError(f"{e}\n{(where / 'log').read_text()[-1000:]}") from e
        finally:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(10)
