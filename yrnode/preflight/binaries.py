"""The programs' own versions: etcd and dscli, asked for them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yrnode.config.layout import etcd_nodes
from yrnode.config.programs import program
from yrnode.model.errors import UsageError
from yrnode.preflight.asking import Answer, ask_all
from yrnode.preflight.finding import Finding, Look, blocker, good, not_here, warning
from yrnode.preflight.versions import at_least, key

ETCD, DSCLI = "etcd version", "dscli version"
LOSSY_FIRST, LOSSY_LAST = "3.5.0", "3.5.2"
"""Killed under load, these can lose committed transactions on some members (etcd-io/etcd #13766)."""
_ETCD = re.compile(r"etcd Version:\s*(\S+)")
_DSCLI = re.compile(r"dscli\s+(\d\S*)")


def look(at: Look) -> list[Finding]:
    cluster, env = at.host.cluster, at.host.caller
    members = len(etcd_nodes(cluster)) if at.host.node in etcd_nodes(cluster) else 0
    wanted = {DSCLI: cluster.bin.dscli, **({ETCD: cluster.bin.etcd} if members else {})}
    argvs = {}
    for name, words in wanted.items():
        try:
            argvs[name] = [*program(words, env.get("PATH")), "--version"]
        except UsageError:
            # that it is missing has a line of its own
            continue
    answers = dict(zip(argvs, ask_all(list(argvs.values()), _bare(env)), strict=True))
    found = [judge_dscli(answers[DSCLI])] if DSCLI in answers else [not_here(DSCLI, "no dscli")]
    if not members:
        return [not_here(ETCD, "no etcd of ours on this node"), *found]
    return [judge_etcd(answers[ETCD], members) if ETCD in answers else not_here(ETCD, "no etcd"), *found]


def _bare(env: Mapping[str, str]) -> dict[str, str]:
    """etcd takes its flags from ETCD_*, and would complain of them; python leaves no compiled files behind."""
    return {**{k: v for k, v in env.items() if not k.startswith("ETCD")}, "PYTHONDONTWRITEBYTECODE": "1"}


def judge_etcd(answer: Answer, members: int) -> Finding:
    """`members`: nodes that run etcd for each other."""
    match = _ETCD.search(answer.text)
    version = match[1] if match else ""
    if not version or key(version) is None:
        why = answer.error or "its version is not understood"
        return warning(ETCD, why, "an etcd that answers", "see bin.etcd, and run it with --version yourself")
    needed = f"any but {LOSSY_FIRST} to {LOSSY_LAST}"
    if at_least(version, LOSSY_FIRST) and at_least(LOSSY_LAST, version):
        words = f"{version}, which can lose what it has committed"
        cure = "install a later etcd, or name it as bin.etcd"
        return (blocker if members > 1 else warning)(ETCD, words, needed, cure)
    return good(ETCD, version, needed)


def judge_dscli(answer: Answer) -> Finding:
    match = _DSCLI.search(answer.text)
    if match is None:
        why = answer.error or "its version is not understood"
        return warning(DSCLI, why, "a dscli that answers", "see bin.dscli, and run it with --version yourself")
    return good(DSCLI, match[1])
