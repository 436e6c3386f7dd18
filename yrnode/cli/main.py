"""`yrnode VERB …`: finds the verb, imports only its module, and turns every end into an exit code."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from yrnode import __version__
from yrnode.cli.errors import NotGood
from yrnode.model.errors import UsageError

VERBS = {
    "run": ("run", "the daemon, in the foreground"),
    "demo": ("demo", "a whole one-node stack in a temporary directory"),
    "check": ("check", "validate the cluster file"),
    "render": ("render", "the exact command lines, environments and files of every component"),
    "import": ("importing", "a cluster file from the guides' scripts, read without running them"),
    "status": ("status", "node, components, groups: what is wrong and why"),
    "events": ("events", "what happened, with causes"),
    "logs": ("logs", "a component's own output"),
    "start": ("control", "start a component, a group, a node, or all"),
    "stop": ("control", "stop a component, a group, a node, or all"),
    "restart": ("control", "restart a component, a group, or all"),
    "pause": ("control", "hands off: nothing is started or stopped on its own"),
    "resume": ("control", "hands on again"),
    "drain": ("drain", "take this node's groups out of the router, finish their requests, stop"),
    "fence": ("control", "your word that a node is off"),
    "drill": ("drill", "one fault on purpose: how fast is it seen, and what does it cost"),
    "clean": ("clean", "what is left over, whose it is, and whether it may go"),
    "collect": ("collect", "one archive for whoever looks into a fault: logs, states, versions; secrets out"),
    "reload": ("reload", "read the cluster file again: what differs, what it would restart; restarts nothing"),
    "probe": ("probe", "live or ready, by exit code, for an outside prober"),
    "cache": ("cache", "hit rates of the ranks' prefix caches, local and external"),
    "kv-check": ("kv_check", "set on one node's worker, get on another's: hits and latency"),
    "verify": ("verify", "health, a completion, and what the external cache did"),
}
"""Verb → (module in yrnode.cli, one line of help). A module has `arguments(parser)` and `run(args) -> exit code`."""


COMMON = "for every verb"
"""The title of the options that all of them take."""


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and never guesses from half a word."""

    def __init__(self, prog: str, text: str) -> None:
        super().__init__(prog=prog, description=text, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. 0 good, 1 not good, 2 usage, 130 after Ctrl-C."""
    _open_standard_files()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except UsageError as e:
        more = f" (and {len(e.lines) - 1} more: yrnode check)" if len(e.lines) > 1 else ""
        return _complain(f"{e.lines[0] if e.lines else 'usage'}{more}", 2, words)
    except NotGood as e:
        return _complain(str(e), 1, words)
    except BrokenPipeError:
        _drop_stdout()  # the reader, such as head, has seen enough
        return 1
    except OSError as e:
        _drop_stdout()
        return _complain(f"yrnode: {e.filename or 'output'}: {e.strerror or e}", 1, ())
    except KeyboardInterrupt:
        return 130
    return code


def _dispatch(argv: list[str]) -> int:
    if not argv:
        raise UsageError(f"yrnode: a verb is missing: {', '.join(VERBS)}; see yrnode --help")
    verb = argv[0]
    if verb in ("-h", "--help", "help"):
        print(_help())
        return 0
    if verb in ("-V", "--version", "version"):
        print(f"yrnode {__version__}")
        return 0
    if verb not in VERBS:
        what = "write the verb first" if verb.startswith("-") else f'there is no verb "{verb}"'
        raise UsageError(f"yrnode: {what}: {', '.join(VERBS)}; see yrnode --help")
    try:
        args = parser_of(verb).parse_args(argv[1:])
    except SystemExit as e:  # --help has printed
        return int(e.code or 0)
    args.verb = verb
    return int(_module(verb).run(args))


def parser_of(verb: str) -> Parser:
    """All that the verb takes. `--help`, the man page and the shells' completions are made of it."""
    text = VERBS[verb][1]
    parser = Parser(f"yrnode {verb}", text[0].upper() + text[1:] + ".")
    _module(verb).arguments(parser)
    _common(parser)
    return parser


def _module(verb: str) -> ModuleType:
    return import_module(f"yrnode.cli.{VERBS[verb][0]}")


def _common(parser: argparse.ArgumentParser) -> None:
    common = parser.add_argument_group(COMMON)
    common.add_argument(
        "--config", metavar="FILE", help="the cluster file; else YRNODE_CONFIG, else /etc/yrnode/cluster.yaml"
    )
    common.add_argument(
        "--node", metavar="NAME", help="which node of the file this is; else YRNODE_NODE, else by address"
    )
    common.add_argument(
        "-o", dest="output", choices=("text", "json"), default="text", help="for people, or for programs"
    )
    common.add_argument("--yes", action="store_true", help="do not ask")


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items())
    return (
        "usage: yrnode VERB [options]\n\n"
        "The node-local supervisor for LLM serving with vLLM and the openYuanrong datasystem.\n\n"
        f"{verbs}\n\n"
        "Each verb explains itself: yrnode VERB --help. Exit: 0 good, 1 not good, 2 usage."
    )


def _drop_stdout() -> None:
    # the interpreter flushes once more at its end, which must not fail then
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_standard_files() -> None:
    """A cron job or a supervisor may start us without: what we then open would be taken for them."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            # the lowest free number, so this very one
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115  for the process's life


def _complain(text: str, code: int, words: Sequence[str]) -> int:
    line = " ".join(text.splitlines())
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)
        if any(a == "-o" and b == "json" for a, b in itertools.pairwise(words)) or "-ojson" in words:
            print(json.dumps({"error": line}), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
