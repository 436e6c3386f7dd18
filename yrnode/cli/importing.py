"""`yrnode import`: a cluster file from the scripts that ran the cluster so far. They are read, never run."""

from __future__ import annotations

import argparse
import json
import sys


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="the scripts of all nodes of one cluster")
    parser.add_argument(
        "--deployment", choices=("merged", "separated"), help="which of the two that deploy_env.sh describes"
    )


def run(args: argparse.Namespace) -> int:
    """The file on stdout, and on stderr what it lacks. 0 when all was read, 1 when something has to be looked at."""
    from yrnode.config.scripts.cluster import imported

    found = imported(args.files, args.deployment)
    # what has to be looked at stands last, where a person sees it
    told = {"dropped": found.notes.dropped, "not_read": found.notes.not_read, "open": found.notes.open}
    if args.output == "json":
        print(json.dumps({"file": found.text, **{key: [n.as_dict() for n in notes] for key, notes in told.items()}}))
    else:
        print(found.text, end="")
    for key, notes in told.items():
        for note in notes:
            print(f"{key.replace('_', ' ')}: {note}", file=sys.stderr)
    return 0 if found.notes.good else 1
