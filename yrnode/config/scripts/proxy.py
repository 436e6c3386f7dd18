"""proxy.sh: vllm-ascend's sample proxy, with the addresses and ports of all prefill and decode servers."""

import os
from dataclasses import dataclass

from yrnode.config.scripts.bash import Command, Script
from yrnode.config.scripts.flags import Flags, Value, flags, number_of, text_of, words_of
from yrnode.config.scripts.notes import Notes, add

Place = tuple[str, int | None]


@dataclass
class Proxy:
    """One proxy."""

    file: str
    line: int
    program: str
    script: str
    host: str
    """Where it listens; may be unknown."""
    port: int | None
    prefill: list[Place]
    decode: list[Place]
    args: dict[str, Value]
    env: dict[str, str]


def is_proxy(words: list[str]) -> bool:
    return any(word.partition("=")[0] == "--prefiller-hosts" for word in words)


def proxy(script: Script, command: Command, words: list[str], notes: Notes) -> Proxy:
    """The proxy that a command starts."""
    first, found, odd = flags(words)
    file = next((word for word in first if word.endswith(".py")), "")
    for word in odd:
        add(
            notes.not_read, script.file, command.line, word, "it is given twice, or stands where no value is expected"
        )
    for word in first:
        if word != file and word != first[0]:
            add(notes.not_read, script.file, command.line, word, "options of Python are not kept")
    for name in command.unset:
        why = "the router gets a built environment, without anybody's proxy"
        add(notes.dropped, script.file, command.line, f"unset {name}", why)
    prefill, decode = (_places(script, command, found, word, notes) for word in ("prefiller", "decoder"))
    host, port = text_of(found.pop("host", None)) or "", number_of(found.pop("port", None))
    program = first[0] if first and os.path.basename(first[0]).startswith("python") else ""
    return Proxy(
        script.file, command.line, program, file, host, port, prefill, decode, dict(found), dict(command.env)
    )


def _places(script: Script, command: Command, found: Flags, word: str, notes: Notes) -> list[Place]:
    hosts = words_of(found.pop(f"{word}-hosts", True))
    ports = words_of(found.pop(f"{word}-ports", True))
    if len(hosts) != len(ports):
        text = f"--{word}-hosts and --{word}-ports"
        add(notes.not_read, script.file, command.line, text, f"there are {len(hosts)} and {len(ports)} of them")
        return []
    return [(host, number_of(port)) for host, port in zip(hosts, ports, strict=True)]
