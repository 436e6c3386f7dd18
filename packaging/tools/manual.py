"""The man page yrnode(1), from the parsers of all verbs.

usage: manual.py      (SOURCE_DATE_EPOCH: its date)
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Iterator

from yrnode import __version__
from yrnode.cli.main import COMMON, VERBS, Parser, parser_of
from yrnode.config.cluster import Cluster
from yrnode.config.files import DEFAULT_FILE

EXIT = {
    "0": "good",
    "1": "not good: what was asked for is not so, or could not be done",
    "2": "usage: a word or the cluster file is wrong; one line on stderr says what to do",
    "130": "ended by Ctrl-C",
}
SIGNALS = {
    "SIGTERM, SIGINT": "stop everything in order. From systemd, as part of a restart: end the daemon alone",
    "SIGUSR1": "end the daemon alone; the next one takes over what runs",
    "SIGHUP": "read the cluster file again and log what differs, as yrnode reload says it; nothing restarts",
}
VARIABLES = {
    "YRNODE_CONFIG": "the cluster file, where --config is not given",
    "YRNODE_NODE": "which node of the file this is, where --node is not given",
}
PLACES = {
    DEFAULT_FILE: "the cluster file",
    "/etc/yrnode/environment": "variables of this host for the service, one NAME=value a line",
    "/usr/share/yrnode/config": "cluster files to begin with",
    **{
        str(Cluster.model_fields[key].default): f"{what} ({key})"
        for key, what in {
            "state_dir": "etcd's data, records of groups, wishes, events; must survive a reboot",
            "run_dir": "records of what runs, the control socket; must not be lost while anything runs",
            "log_dir": "the components' output",
        }.items()
    },
}


def manual() -> str:
    """The page in the man macros."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    seconds = (
        int(os.environ.get("SOURCE_DATE_EPOCH") or 0) or datetime.datetime.now(datetime.timezone.utc).timestamp()
    )
    day = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).date()
    yield f'.TH YRNODE 1 "{day}" "yrnode {_text(__version__)}" "System administration"'
    yield from (
        ".SH NAME",
        _text("yrnode - supervisor of one node for LLM serving with vLLM and the openYuanrong datasystem"),
    )
    yield from (".SH SYNOPSIS", r".B yrnode \fIVERB\fR [\fIoption\fR ...]", ".br", ".B yrnode --help | --version")
    yield ".SH DESCRIPTION"
    yield _text(
        "yrnode runs one node of an LLM deployment from one cluster file: etcd, a datasystem worker as external KV "
        "cache, one vllm serve for each local data-parallel rank, and a router. It starts them in order, each only "
        "after what it needs has been proven to work, watches them, restarts what must be restarted and no more, and "
        "says why."
    )
    yield ".SH VERBS"
    parsers = {verb: parser_of(verb) for verb in VERBS}
    for verb, (_, text) in VERBS.items():
        yield from (f".SS {_text(_usage(verb, parsers[verb]))}", _text(text[0].upper() + text[1:] + "."))
        yield from _actions(own(parsers[verb]))
    yield ".SH OPTIONS OF EVERY VERB"
    yield from _actions(common(next(iter(parsers.values()))))
    for title, table in (("EXIT STATUS", EXIT), ("SIGNALS TO yrnode run", SIGNALS), ("ENVIRONMENT", VARIABLES)):
        yield f".SH {title}"
        yield from _table(table)
    yield ".SH FILES"
    yield from _table(PLACES)
    yield from (".SH SEE ALSO", r".BR systemctl (1), \ /usr/share/doc/yrnode")


def common(parser: Parser) -> list[argparse.Action]:
    """The options that every verb takes."""
    return [a for group in parser._action_groups if group.title == COMMON for a in group._group_actions]


def own(parser: Parser) -> list[argparse.Action]:
    """What a verb takes beside those."""
    others = common(parser)
    return [a for a in parser._actions if a not in others and a.dest != "help"]


def named(action: argparse.Action) -> str:
    """An option with its value, or an argument, as a person writes it."""
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return str(value)
    return ", ".join(action.option_strings) + ("" if action.nargs == 0 else f" {value}")


def _usage(verb: str, parser: Parser) -> str:
    words = [f"yrnode {verb}"]
    for action in own(parser):
        optional = action.option_strings or action.nargs in ("?", "*")
        words.append(f"[{named(action)}]" if optional else named(action))
    return " ".join(words)


def _actions(actions: list[argparse.Action]) -> Iterator[str]:
    yield from _table({named(a): a.help or "" for a in actions})


def _table(rows: dict[str, str]) -> Iterator[str]:
    for name, what in rows.items():
        yield from (".TP", rf"\fB{_text(name)}\fR", _text(what))


def _text(text: str) -> str:
    """Hyphens that can be copied, no letter that an old troff does not know, and nothing that reads as a macro."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    plain = "".join(c if c.isascii() else rf"\[u{ord(c):04X}]" for c in plain)
    return rf"\&{plain}" if plain[:1] in (".", "'") else plain


if __name__ == "__main__":
    sys.stdout.write(manual())
