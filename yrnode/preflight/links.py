"""The network link of each NPU, which other nodes reach it by. Unverified on hardware: `hccn_tool` is read as its
public reference says, `link status: UP`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yrnode.preflight import npus
from yrnode.preflight.asking import Answer, ask_all
from yrnode.preflight.finding import UNVERIFIED, Finding, Look, good, not_here, warning

NAME, TOOL = "NPU links", "hccn_tool"
_STATUS = re.compile(r"link status\s*:\s*(\w+)", re.IGNORECASE)


def look(at: Look) -> list[Finding]:
    if not npus.present(at):
        return [not_here(NAME, "no NPUs")]
    if len(at.host.cluster.nodes) == 1:
        return [not_here(NAME, "one node alone")]
    path, devices = npus.tool(at, TOOL), sorted(npus.wanted(at))
    if path is None:
        return [warning(NAME, f"no {TOOL}", f"{TOOL} to look at them", f"mount {TOOL} into the container")]
    answers = ask_all([[path, "-i", str(n), "-link", "-g"] for n in devices], at.host.engine_env)
    return [judge(dict(zip(devices, answers, strict=True)))]


def status(text: str) -> str:
    """UP, DOWN, or empty for what is not understood."""
    match = _STATUS.search(text)
    return match[1].upper() if match else ""


def judge(answers: Mapping[int, Answer]) -> Finding:
    """`answers` by device."""
    seen = {n: status(a.text) or a.error or "not understood" for n, a in answers.items()}
    bad = {n: what for n, what in seen.items() if what != "UP"}
    if not bad:
        return good(NAME, f"{len(seen)} links up", UNVERIFIED)
    words = ", ".join(f"device {n}: {what}" for n, what in bad.items())
    cure = f"see {TOOL} -i {next(iter(bad))} -link -g, its cable and its switch"
    return warning(NAME, words, f"link status UP ({UNVERIFIED})", cure)
