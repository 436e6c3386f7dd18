"""The page for people: one table that renews itself, without any script."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape
from typing import Any

from yrnode.model.event import Event

EVENTS = 20
"""Events that the page shows."""

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:1.5em;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}
th{color:#666;font-weight:normal;border-bottom:1px solid #ccc}
.good{color:#176f2c}.bad{color:#b3261e;font-weight:bold}.wait{color:#8a5a00}
"""

_GOOD = {"ready", "go", "ok"}
_BAD = {"failed", "unhealthy", "fail", "held"}


def render(status: dict[str, Any], events: Sequence[Event]) -> str:
    """An HTML page of a status and the latest events, oldest first."""
    title = f"{status['node']} · {status['cluster']}"
    ready = status["ready"]
    head = _tag("ready" if ready else "unhealthy", "ready" if ready else "not ready")
    store = status["store"]
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}: {head}</h1>",
            "".join(f"<p>{escape(line)}</p>" for line in status["reasons"]),
            f"<p>yrnode {escape(status['version'])}; store ",
            f"{'answers' if store['available'] else 'unavailable'} since {escape(store['since'])}</p>",
            _table(
                ("component", "state", "since", "pid", "restarts", "generation", "reason"),
                [
                    (name, c["state"], c["since"], c["pid"], c["restarts"], c["generation"], c["reason"])
                    for name, c in status["components"].items()
                ],
            ),
            _table(
                ("group", "stage", "generation", "waits for", "cause"),
                [
                    (name, g["stage"], g["generation"], ", ".join(g["waiting_for"]), g["cause"])
                    for name, g in status["groups"].items()
                ],
            ),
            _table(
                ("check", "verdict", "evidence"),
                [
                    (f"{name} {check}", v["verdict"], v["evidence"])
                    for name, c in status["components"].items()
                    for check, v in c["checks"].items()
                ],
            ),
            _table(
                ("time", "target", "what", "why"),
                [(_time(e.at), e.target, e.what, f"{e.text} {e.evidence}") for e in reversed(events)],
            ),
            "</body></html>",
        )
    )


def _table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return ""
    tagged = titles[1] != "target"
    head = "".join(f"<th>{escape(t)}</th>" for t in titles)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{_tag(v, v) if tagged and i == 1 else _cell(v)}</td>" for i, v in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    return "" if value is None else escape(str(value))


def _tag(state: str, text: str) -> str:
    kind = "good" if state in _GOOD else "bad" if state in _BAD else "wait"
    return f'<span class="{kind}">{escape(text)}</span>'


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
