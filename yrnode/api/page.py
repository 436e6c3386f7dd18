"""The page for people: a snapshot that is readable as it is, and the script that keeps it up to date."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

from yrnode.model.event import Event

EVENTS = 60
"""Events that the page begins with."""

_WEB = Path(__file__).parent / "web"
_SCRIPTS = ("words.js", "dom.js", "draw.js", "live.js")

_GOOD = {"ready", "go", "ok"}
_BAD = {"failed", "unhealthy", "fail"}


@functools.cache
def _asset(name: str) -> str:
    return (_WEB / name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    return '(() => {\n"use strict";\n' + "".join(_asset(name) for name in _SCRIPTS) + "})();"


@functools.cache
def policy() -> str:
    """The page's Content-Security-Policy: its own style and script to the letter, its own server, nothing else."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(_script())}'",
            f"style-src '{_hash(_asset('page.css'))}'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def render(status: dict[str, Any], events: Sequence[Event]) -> str:
    """An HTML page of a status and the latest events, oldest first."""
    parts = {
        "title": escape(f"{status['node']} · {status['cluster']}"),
        "style": _asset("page.css"),
        "script": _script(),
        "snapshot": _snapshot(status, events),
    }
    # in one pass: what the daemon says is never looked at for marks
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _asset("page.html"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _snapshot(status: dict[str, Any], events: Sequence[Event]) -> str:
    ready, store, components = status["ready"], status["store"], status["components"]
    return "".join(
        (
            f"<p>{_tag('ready' if ready else 'unhealthy', 'ready' if ready else 'not ready')} ",
            f"yrnode {escape(status['version'])}; store ",
            f"{'answers' if store['available'] else 'unavailable'} since {escape(store['since'])}; ",
            f"as of {escape(status['at'])}</p>",
            "".join(f"<p>{escape(line)}</p>" for line in status["reasons"]),
            _table(
                "Components",
                ("component", "state", "since", "pid", "restarts", "generation", "reason"),
                [
                    (name, c["state"], c["since"], c["pid"], c["restarts"], c["generation"], c["reason"])
                    for name, c in components.items()
                ],
            ),
            _table(
                "Groups",
                ("group", "stage", "generation", "waits for", "cause"),
                [
                    (name, g["stage"], g["generation"], ", ".join(g["waiting_for"]), g["cause"])
                    for name, g in status["groups"].items()
                ],
            ),
            _table(
                "Checks",
                ("check", "verdict", "evidence"),
                [
                    (f"{name} {check}", v["verdict"], v["evidence"])
                    for name, c in components.items()
                    for check, v in c["checks"].items()
                ],
            ),
            _table(
                "Events",
                ("target", "what", "time", "why"),
                [(e.target, e.what, _time(e.at), f"{e.text} {e.evidence}") for e in reversed(events)],
            ),
        )
    )


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The second column is a state."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(t)}</th>' for t in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{_tag(v, v) if i == 1 else _cell(v)}</td>" for i, v in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<section><h2>{escape(title)}</h2><div class="wide"><table><tr>{head}</tr>{body}</table></div></section>'


def _cell(value: Any) -> str:
    return "" if value is None else escape(str(value))


def _tag(state: str, text: str) -> str:
    kind = "good" if state in _GOOD else "bad" if state in _BAD else "wait"
    return f'<span class="{kind}">{escape(text)}</span>'


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
