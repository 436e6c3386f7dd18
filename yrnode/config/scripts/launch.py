"""Lines of server.sh: `launch_online_dp.py` starts run_dp_template.sh once for each rank of a node."""

import os
import re
from dataclasses import dataclass

from yrnode.config.scripts import values
from yrnode.config.scripts.bash import Command, Script
from yrnode.config.scripts.flags import flags, number_of, text_of
from yrnode.config.scripts.notes import Notes, add
from yrnode.config.scripts.vllm import is_address

LAUNCHER = "launch_online_dp.py"
MAX_RANKS = 1024
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_ROLES = {
    "producer": re.compile(r"(?<![A-Za-z])(P|[Pp]refill(er)?)(?![A-Za-z])"),
    "consumer": re.compile(r"(?<![A-Za-z])(D|[Dd]ecode(r)?)(?![A-Za-z])"),
}


@dataclass
class Launch:
    """One line: the ranks of one node."""

    file: str
    line: int
    size: int
    """Ranks of the group."""
    tensor: int
    count: int
    """Ranks of this node."""
    start: int
    """The first of them."""
    head: str
    """Address of the group's first node; may be unknown."""
    rpc_port: str
    port: int
    """Of the node's first rank."""
    env: dict[str, str]
    unset: tuple[str, ...]
    address: str
    """The node's own, by the comment above the line; empty where there is none."""
    role: str
    """producer, consumer, or empty: by the comment above the line, or the file's path."""

    def positions(self, local: int) -> dict[str, str]:
        """What `$1`, `$2` … are for one rank of the node."""
        devices = range(local * self.tensor, (local + 1) * self.tensor)
        given = (
            ",".join(map(str, devices)),
            str(self.port + local),
            str(self.size),
            str(self.start + local),
            self.head,
            self.rpc_port,
            str(self.tensor),
        )
        return {str(at): value for at, value in enumerate(given, 1)}


def is_launch(words: list[str]) -> bool:
    return any(os.path.basename(word) == LAUNCHER for word in words[:4])


def launch(script: Script, command: Command, words: list[str], notes: Notes) -> Launch | None:
    """The ranks that a line starts; None, and told, where its numbers are not known."""
    at = next(i for i, word in enumerate(words) if os.path.basename(word) == LAUNCHER)
    first, found, odd = flags(words[at + 1 :])
    # launch_online_dp.py's own defaults
    size = number_of(found.pop("dp-size", None))
    tensor, start, port, count = (
        number_of(found.pop(name, default))
        for name, default in (
            ("tp-size", "1"),
            ("dp-rank-start", "0"),
            ("vllm-start-port", "9000"),
            ("dp-size-local", "-1"),
        )
    )
    head, rpc = text_of(found.pop("dp-address", None)) or "", text_of(found.pop("dp-rpc-port", None)) or "12345"
    for word in [*first, *odd, *(f"--{name}" for name in found)]:
        add(notes.not_read, script.file, command.line, word, f"{LAUNCHER} of the guides has no such flag")
    if (
        size is None
        or tensor is None
        or start is None
        or port is None
        or not 1 <= size <= MAX_RANKS
        or tensor > MAX_RANKS
    ):
        text = " ".join(words)
        add(notes.not_read, script.file, command.line, text, "its sizes are not known; write them as numbers")
        return None
    told = " ".join(command.comments[-1:])
    address = next((a for a in _IPV4.findall(told) if is_address(a)), "")
    role = next((role for text in (told, script.file) for role, word in _ROLES.items() if word.search(text)), "")
    # the node of rank 0 is the one that the others meet
    address = address or (head if start == 0 and is_address(head) else "")
    rest = max(0, size - start)
    return Launch(
        script.file, command.line, size, tensor, rest if count is None else min(count, rest), start,
        head, rpc, port, dict(command.env), command.unset, address, role,
    )  # fmt: skip


def own_address(variables: dict[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """Variables of a template that hold its node's address, each to be filled in for every node."""
    return {name: values.part(values.POSITION, "address") for name in names if name in variables}
