"""What the API needs from the node, and nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from yrnode.model.identity import Identity
from yrnode.model.snapshot import Snapshot
from yrnode.telemetry.events import EventLog
from yrnode.telemetry.metrics import Metrics

VERBS = ("start", "stop", "restart", "pause", "resume", "fence")
DRILLS = ("kill", "freeze", "hang", "spin", "store-down", "store-empty", "daemon-kill")
"""What `drill` can do to a ready component; `spin` only to the stand-in engine. `daemon-kill` is only noted."""


class Node(Protocol):
    """The daemon as the API sees it. All of it is called on the loop's thread."""

    @property
    def identity(self) -> Identity: ...

    @property
    def events(self) -> EventLog: ...

    @property
    def metrics(self) -> Metrics: ...

    def snapshot(self) -> Snapshot:
        """The latest facts. Must be cheap: it is called for each request."""
        ...

    def alive(self) -> bool:
        """Whether the loop makes rounds."""
        ...

    def log_paths(self, name: str) -> list[Path]:
        """The output files of a component, oldest first. UsageError for an unknown name."""
        ...

    async def control(self, verb: str, target: str, who: str, why: str, dry_run: bool) -> dict[str, Any]:
        """Start, stop or restart a component, a group or `all`; start or stop a node; pause or resume a component, a
        group or `all`; fence a node; `verb` is one of VERBS. A pause returns when every node that is there has it, or
        after HEARD_EVERYWHERE_S; `"absent"` names the others. `"not_kept"`: why the next yrnode would not know it.

        Returns the blast radius, with `dry_run` without doing anything:
        `{"verb", "target", "components": [names that start or stop, in order], "untouched": [the other names],
        "coupled": [groups that restart with it], "quiet": bool, "groups": [groups that it is about, as a whole],
        "nodes": [nodes that it reaches], "ranks": how many ranks those groups have on all nodes, "usual_s": what such
        a start usually takes here or null, "waiting": [what a resume may act on at once], "done": bool}`. `quiet`: it
        counts though it may touch nothing here. `done` says that the intent is taken, not that it is carried out.
        UsageError for an unknown target, with the names that there are; NotNow for what cannot be done at present.
        """
        ...

    async def drain(self, target: str, who: str, why: str, seconds: float, dry_run: bool) -> dict[str, Any]:
        """Take this node's groups out of the router, let them finish for `seconds` at most, and stop them here.

        Returns at once, with what `control` returns and `{"others": [nodes whose part stops too],
        "router": [ranks that leave the router]}`; status tells how far it is. UsageError for another node, NotNow for
        what cannot be done at present.
        """
        ...

    async def drill(self, drill: str, target: str, who: str, why: str, dry_run: bool) -> dict[str, Any]:
        """Inject one of DRILLS into a component; for `daemon-kill`, of the target `yrnode`, only note who will do it.

        Returns what `control` returns, of what will restart on its own then, and `{"drill", "seen_at": [targets of
        the events by which it is seen], "seq": the number of the event that says so}`; with `dry_run` nothing is done
        and there is no `seq`. UsageError where it does not fit the component, NotNow where that is not ready.
        """
        ...
