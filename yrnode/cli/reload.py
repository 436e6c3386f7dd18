"""`yrnode reload`: the daemon reads its cluster file again and says what differs, and what that would restart."""

from __future__ import annotations

import argparse
import json
from typing import Any

from yrnode.cli.client import Client
from yrnode.cli.place import find
from yrnode.cli.table import plain

ANSWER_S = 60.0
"""It sources the scripts of env_from again."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """`yrnode reload` takes only what every verb takes."""


def run(args: argparse.Namespace) -> int:
    """0, whether anything differs or not; 2 where the file is no good. Restarts nothing, so it does not ask."""
    # of a faulty file the daemon tells itself
    found = Client(find(args, tell=False), ANSWER_S).post("/control/reload", {})
    print(json.dumps(found) if args.output == "json" else "\n".join(map(plain, text(found))))
    return 0


def text(found: dict[str, Any]) -> list[str]:
    file, changed, groups = found["file"], found["changed"], found["groups"]
    here = found["components"].get(found["node"], [])
    elsewhere = {node: names for node, names in found["components"].items() if node != found["node"]}
    if not changed and not found["components"]:
        return [f"{file}: nothing differs from what yrnode has"]
    lines = [f"{file}: {len(changed)} {'key differs' if len(changed) == 1 else 'keys differ'} from what yrnode has"]
    lines += [f"  {d['key']}: {_word(d['old'])} -> {_word(d['new'])}" for d in changed]
    if not changed:
        lines.append("  but what its environment or the scripts of env_from set does")
    if here:
        lines.append(f"other processes here: {', '.join(here)}")
    lines += [f"other processes on {node}: {', '.join(names)}" for node, names in elsewhere.items()]
    if groups:
        lines.append(f"groups that would restart: {', '.join(groups)}")
    if not found["components"] and not groups:
        lines.append("no process would be another one: only how yrnode looks at them")
    lines.append("nothing is restarted, and yrnode goes on with the file that it has")
    return [*lines, *_how(found, here)]


def _how(found: dict[str, Any], here: list[str]) -> list[str]:
    """How the new file is taken."""
    if found["stranded"]:
        keys = ", ".join(found["stranded"])
        return [f"{keys} cannot change while anything runs: put the old file back, yrnode stop all, then the new one"]
    groups = found["groups"]
    where = "on each of its nodes, " if len(found["components"]) > 1 or groups else ""
    lines = [f"to take it: the file {where}and there {_another(found)}, which leaves running what runs"]
    if found.get("runs", {}).get("by") == "init":
        lines.append("  from the container's host: systemctl reload yrnode-container, or docker kill -s USR1 NAME;")
        lines.append("  a restart of the container stops everything")
    if groups:
        lines.append("each group takes it with its next life, once all its nodes have the same file:")
        lines += [f"  yrnode restart {group}" for group in groups]
    if singles := [name for name in here if not name.startswith("rank/")]:
        lines.append("and each of these with its next start:")
        lines += [f"  yrnode restart {name}" for name in singles]
    return lines


def _another(found: dict[str, Any]) -> str:
    """What ends the daemon alone, so that another one takes its place: by what the daemon says of itself."""
    runs = found.get("runs") or {"by": "systemd", "unit": "yrnode.service", "user": False}
    if runs["by"] == "systemd":
        user = "--user " if runs["user"] else ""
        return f"systemctl {user}restart {runs['unit'].removesuffix('.service')}"
    if runs["by"] == "init":
        return f"kill -USR1 {runs['pid']}"
    return f"kill -USR1 {runs['pid']} and yrnode run --config {found['file']}"


def _word(value: Any) -> str:
    return "not there" if value is None else json.dumps(value, ensure_ascii=False)
