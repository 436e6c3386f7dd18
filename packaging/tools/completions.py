"""Completions for bash and zsh, from the parsers of all verbs.

usage: completions.py bash|zsh
"""

from __future__ import annotations

import argparse
import sys

import shtab

from yrnode.cli.main import VERBS, parser_of


def completions(shell: str) -> str:
    """The script of one shell."""
    whole = argparse.ArgumentParser("yrnode", allow_abbrev=False)
    whole.add_argument("--version", action="version", version="", help="the version")
    verbs = whole.add_subparsers()
    for verb, (_, text) in VERBS.items():
        parser = parser_of(verb)
        for action in parser._actions:
            if action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar == "DIR":
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        verbs.add_parser(verb, help=text, parents=[parser], add_help=False, allow_abbrev=False)
    return shtab.complete(whole, shell) + "\n"


if __name__ == "__main__":
    sys.stdout.write(completions(sys.argv[1]))
