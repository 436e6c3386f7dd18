"""How ranks copy between host and NPU: what their variables say and the datasystem's client does not do."""

from __future__ import annotations

from collections.abc import Mapping

from yrnode.config import copying
from yrnode.preflight.finding import Finding, Look, good, not_here, warning

NAME = "copying"


def look(at: Look) -> list[Finding]:
    envs = {spec.name: spec.env for spec in at.specs if spec.kind == "rank"}
    return judge(envs, at.host.cluster.datasystem.huge_pages)


def judge(envs: Mapping[str, Mapping[str, str]], huge: bool) -> list[Finding]:
    """`envs`: variables by rank, as it gets them. `huge`: the worker has huge pages."""
    if not envs:
        return [not_here(NAME, "no rank on this node")]
    ranks: dict[tuple[str, str], list[str]] = {}
    for rank, env in envs.items():
        for note in copying.notes(env, huge):
            ranks.setdefault(note, []).append(rank)
    found = []
    for (name, text), whose in ranks.items():
        why, _, cure = text.partition("; ")
        found.append(warning(NAME, f"{name} of {', '.join(whose)}: {why}", "variables that do what they say", cure))
    return found or [good(NAME, "each variable does what it says")]
