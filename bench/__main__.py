"""`python -m bench [--only NAME]`: measure, print the table, write the list and what it was measured on."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path

from bench import alarms, deaths, groups, stack
from bench.about import about, quiet
from bench.contract import LINES, chosen
from bench.result import Row
from bench.table import table

Measure = Callable[[Set[str]], Iterator[Row]]
"""Those of its rows that are asked for, each as soon as it is there; one that comes again replaces the first."""
MEASURES: tuple[tuple[Measure, tuple[str, ...]], ...] = (
    (deaths.measure, deaths.NAMES),
    (groups.of_8, groups.NAMES_8),
    (groups.of_64, groups.NAMES_64),
    (groups.of_256, groups.NAMES_256),
    (stack.cold, stack.NAMES_COLD),
    (stack.measure, stack.NAMES),
    (stack.metrics, stack.NAMES_METRICS),
    (alarms.measure, alarms.NAMES),
)
"""What is measured together, in this order."""


def main(words: Sequence[str] | None = None) -> int:
    """0: all was measured; 1: something could not be; 2: there is no such name."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", default="", metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    args = parser.parse_args(words)
    try:
        names = chosen(args.only)
    except KeyError:
        print(f"bench: no row {args.only!r}; there are: {', '.join(LINES)}", file=sys.stderr)
        return 2
    facts, began = about(), time.monotonic()
    if warning := quiet():
        print(f"bench: {warning}", file=sys.stderr)
    rows: dict[str, Row] = {}
    for row in measured(names):
        rows[row.name] = row
        facts.update(load_after=list(os.getloadavg()), seconds=round(time.monotonic() - began, 1))
        # what is interrupted keeps what it has
        args.out.write_text(json.dumps([row.json() for row in rows.values()], indent=1) + "\n")
        args.out.with_suffix(".about.json").write_text(json.dumps({"about": facts}, indent=1) + "\n")
    print(table(rows.values()))
    return 0 if all(row.samples for row in rows.values()) else 1


def measured(names: Set[str]) -> Iterator[Row]:
    """The rows in the order of the measurements. One that fails gives rows that say so, and the others go on."""
    for measure, gives in MEASURES:
        wanted = names & set(gives)
        if not wanted:
            continue
        began, missing = time.monotonic(), [name for name in gives if name in wanted]
        print(f"bench: {', '.join(missing)} …", end=" ", file=sys.stderr, flush=True)
        try:
            for row in measure(wanted):
                if row.name in wanted:
                    missing = [name for name in missing if name != row.name]
                    yield row
        except Exception as e:
            traceback.print_exc()
            yield from (Row(name, (), note=f"could not be measured: {str(e)[:300]!r}") for name in missing)
        print(f"{time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # whoever ends this ends it in order, with all that it has started
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    sys.exit(main())
