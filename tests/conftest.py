"""In CI a skipped test is a failure: it would hide a part that was not set up. Files run side by side, whole."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file share what they have started, so they stay together; the long ones begin first. Seeds of the
    simulation share nothing."""
    for item in items:
        alone = item.path.parent.name == "simulation"
        item.add_marker(pytest.mark.xdist_group(item.nodeid if alone else str(item.path)))
    items.sort(key=lambda item: item.path.parent.name not in ("node", "systemd"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if os.environ.get("CI") and skipped:
        for report in skipped:
            terminalreporter.write_line(f"skipped in CI: {report.nodeid}: {report.longrepr}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and exitstatus == 0 and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = 1
