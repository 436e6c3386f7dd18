"""The NPUs that the file gives to this node's ranks: there, healthy, and their memory free.

Unverified on hardware: `npu-smi info` is read as its public examples look, in which every chip has two rows. On cards
with several chips the second row names the device beside the chip, else the card's number is the device's.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from yrnode.config.layout import node_servers
from yrnode.config.render import node_args
from yrnode.preflight.asking import Answer, ask
from yrnode.preflight.finding import UNVERIFIED, Finding, Look, blocker, good, not_here, warning

NAME, TOOL = "NPUs", "npu-smi"
SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/local/Ascend/driver/tools"
UTILIZATION = 0.9
"""What vLLM takes of a device's memory where `gpu-memory-utilization` does not say."""
_CARD = re.compile(r"^\|\s*(\d+)\s+(\S+)\s*\|\s*(\S+)\s*\|\s*\S+\s+\S+\s+(?:\d+\s*/\s*\d+|-|NA|N/A)\s*\|\s*$")
_CHIP = re.compile(r"^\|\s*(\d+)(?:\s+(\d+))?\s*\|\s*([0-9A-Fa-f:.]+|NA|N/A)\s*\|\s*(.*?)\s*\|\s*$")
_PROCESS = re.compile(r"^\|\s*(\d+)\s+(\d+)\s*\|\s*(\d+)\s*\|\s*(.*?)\s*\|\s*(\d+)\s*\|\s*$")
_USAGE = re.compile(r"(\d+)\s*/\s*(\d+)")


@dataclass(frozen=True)
class Device:
    """One device as npu-smi shows it. Memory in MB; `processes`: `name (pid N)` of whoever uses it."""

    number: int
    card: int
    chip: int
    name: str
    health: str
    used_mb: int
    total_mb: int
    processes: tuple[str, ...] = ()


def tool(at: Look, name: str) -> str | None:
    """The path of one of the driver's tools."""
    return shutil.which(name, path=f"{at.host.engine_env.get('PATH', '')}:{SEARCHED}")


def present(at: Look) -> bool:
    """Whether this host, or this container, has been given NPUs."""
    return tool(at, TOOL) is not None or any((at.root / "dev").glob("davinci[0-9]*"))


def wanted(at: Look) -> dict[int, float]:
    """The share of its memory that a rank takes, by device; 0 for one that only the worker uses."""
    cluster, node = at.host.cluster, at.host.node
    found = dict.fromkeys(cluster.datasystem.remote_h2d, 0.0)
    for server in node_servers(cluster, node):
        args = node_args(cluster.groups[server.group], node)
        found |= dict.fromkeys(server.devices, _share(args.get("gpu-memory-utilization")))
    return found


def _share(value: object) -> float:
    try:
        return UTILIZATION if value is None else float(str(value))
    except ValueError:
        return UTILIZATION


def look(at: Look) -> list[Finding]:
    if not present(at):
        return [not_here(NAME, f"no {TOOL} and no /dev/davinci*: ranks run without NPUs")]
    devices = wanted(at)
    if not devices:
        return [not_here(NAME, "no rank on this node")]
    path = tool(at, TOOL)
    if path is None:
        cure = f"mount {TOOL} into the container, as the deployment guide does"
        return [warning(NAME, f"/dev/davinci* without {TOOL}", f"{TOOL} to look at them", cure)]
    return judge_answer(ask([path, "info"], at.host.engine_env), devices, at.runs)


def judge_answer(answer: Answer, wanted: Mapping[int, float], runs: bool) -> list[Finding]:
    """`wanted`: as the function of this name. `runs`: their memory is taken by this node's own ranks."""
    devices = parse(answer.text)
    if not devices:
        why = answer.error or "it names no device that is understood"
        return [warning(NAME, f"{TOOL} info: {why}", f"its table ({UNVERIFIED})", f"run {TOOL} info yourself")]
    found = [*_missing(devices, wanted), *_unwell(devices, wanted)]
    if not runs:
        found += _busy(devices, wanted)
    names = sorted({d.name for d in devices.values() if d.number in wanted})
    words = f"{len(wanted)} devices ({', '.join(names)}), healthy" + ("" if runs else ", their memory free")
    return found or [good(NAME, words, UNVERIFIED)]


def parse(text: str) -> dict[int, Device]:
    """`npu-smi info`: its devices by number. What is not understood is left out."""
    found: dict[int, Device] = {}
    card: tuple[int, str, str] | None = None
    numbers: dict[tuple[int, int], int] = {}
    users: dict[int, list[str]] = {}
    for line in text.splitlines():
        if match := _PROCESS.match(line):
            number = numbers.get((int(match[1]), int(match[2])))
            if number is not None:
                users.setdefault(number, []).append(f"{match[4]} (pid {match[3]})")
        elif match := _CARD.match(line):
            card = int(match[1]), match[2], match[3]
        elif card is not None and (match := _CHIP.match(line)):
            usage = _USAGE.findall(match[4])
            if usage:
                # memory of the board and then of the device itself; the last is the one that models are in
                used, total = usage[-1]
                chip, number = int(match[1]), int(match[2]) if match[2] else card[0]
                numbers[card[0], chip] = number
                found[number] = Device(number, card[0], chip, card[1], card[2], int(used), int(total))
            card = None
    return {n: replace(d, processes=tuple(users.get(n, ()))) for n, d in found.items()}


def _missing(devices: Mapping[int, Device], wanted: Mapping[int, float]) -> list[Finding]:
    absent = sorted(n for n in wanted if n not in devices)
    if not absent:
        return []
    words = f"{TOOL} shows devices {_list(devices)}, not {_list(absent)}"
    cure = "correct devices in the cluster file, or give the container these devices"
    # a container that has been given some may number them anew
    say = blocker if len(devices) < len(wanted) else warning
    return [say(NAME, words, f"devices {_list(wanted)} ({UNVERIFIED})", cure)]


def _unwell(devices: Mapping[int, Device], wanted: Iterable[int]) -> list[Finding]:
    found = []
    for number in sorted(wanted):
        device = devices.get(number)
        if device is None or device.health == "OK":
            continue
        say = warning if device.health == "Warning" else blocker
        cure = f"see {TOOL} info -t health -i {device.card}, or leave the device out"
        found.append(say(NAME, f"device {number} is {device.health}", f"health OK ({UNVERIFIED})", cure))
    return found


def _busy(devices: Mapping[int, Device], wanted: Mapping[int, float]) -> list[Finding]:
    found = []
    for number, share in sorted(wanted.items()):
        device = devices.get(number)
        if device is None or device.total_mb - device.used_mb >= share * device.total_mb:
            continue
        users = ", ".join(device.processes) or "a process that is not seen from here"
        words = f"device {number}: {device.used_mb} of {device.total_mb} MB used by {users}"
        needed = f"{share * device.total_mb:.0f} MB free ({UNVERIFIED})"
        found.append(warning(NAME, words, needed, "end what uses it: yrnode clean shows what an earlier start left"))
    return found


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
