"""In CI a skipped test is a failure: it would hide a part that was not set up."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# how long one example takes is the machine's affair: other tests run beside it
settings.register_profile("yrnode", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("yrnode")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if os.environ.get("CI") and skipped:
        for report in skipped:
            terminalreporter.write_line(f"skipped in CI: {report.nodeid}: {report.longrepr}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and exitstatus == 0 and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = 1
