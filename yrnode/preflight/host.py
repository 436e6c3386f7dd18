"""Everything about this host that would make the start fail. Nothing is changed by looking."""

from __future__ import annotations

from yrnode.components.host import Host
from yrnode.model.spec import ComponentSpec
from yrnode.preflight import datadirs, models, places, ports, programs


def problems(host: Host, specs: list[ComponentSpec]) -> list[str]:
    """One line each, with the cure; empty when nothing stands in the way."""
    # where the directories cannot be used, the rest cannot be judged
    return places.problems(host, specs) or [
        *programs.problems(host),
        *models.problems(host),
        *datadirs.problems(host, specs),
        *ports.problems(host, specs),
    ]
