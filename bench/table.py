"""The rows as a table for people."""

from __future__ import annotations

from collections.abc import Iterable

from bench.result import Peer, Row

HEAD = ("name", "value", "stat", "n", "p50", "p99", "target", "met", "peers")


def table(rows: Iterable[Row]) -> str:
    """One line a row, then what is to be said about some of them."""
    rows = list(rows)
    cells = [HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in cells]
    notes = [f"{row.name}: {text}" for row in rows for text in _notes(row)]
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _cells(row: Row) -> tuple[str, ...]:
    got, unit = row.json(), row.line.unit
    sign = "<=" if row.line.inclusive else "<"
    return (
        row.name,
        "-" if got["value"] is None else f"{got['value']:g} {unit}",
        row.stat,
        str(got["n"]),
        "-" if got["p50"] is None else f"{got['p50']:g}",
        "-" if got["p99"] is None else f"{got['p99']:g}",
        "-" if row.line.target is None else f"{sign} {row.line.target:g}",
        {True: "yes", False: "NO", None: "-"}[row.met],
        ", ".join(_peer(p) for p in row.peers) or "-",
    )


def _peer(p: Peer) -> str:
    return f"{p.name} -" if p.value is None else f"{p.name} {p.json()['value']:g} (n {p.n})"


def _notes(row: Row) -> Iterable[str]:
    if row.note:
        yield row.note
    for p in row.peers:
        if p.why:
            yield f"{p.name}: {p.why}"
