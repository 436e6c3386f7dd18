"""A child is killed: when is it seen, when is there another one. The same children under each supervisor."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from bench import boxed, peers
from bench.result import Peer, Row, peer
from bench.store import deployed_etcd
from bench.supervised import Supervised, Took, directory
from tests.support.etcd import free_port, free_ports

SIZES = ((3, ""), (100, "-100"))
MINE = ("child-death-seen", "respawn")
ADOPTED = ("adopted-death-seen", "respawn-adopted")
NAMES = tuple(f"{name}{more}" for _, more in SIZES for name in (*MINE, *ADOPTED))
KILLS = 100
ADOPTED_KILLS = 100
PEER_KILLS = {"supervisord": 10, "circus": 6}
"""They take seconds."""
NOBODY = tuple(Peer(name, why="takes over nothing that runs") for name in PEER_KILLS)


def own(url: str, count: int, kills: int, adopted_kills: int) -> tuple[Took, Took]:
    """Of children that the daemon has started, and that it has taken over."""
    mine, adopted = Took(), Took()
    names = [f"c{i}" for i in range(count)]
    with directory() as (where, births):
        daemon = Supervised(
            (sys.executable, "-m", "bench.fleet", str(where), url, str(count)), where, r"^(\S+) stop ", births
        )
        daemon.start()
        at = mine
        try:
            daemon.settle(count, " ready ")
            for i in range(kills):
                daemon.kill_one(names[i % count], mine)
                daemon.settle(1, " ready ")
            at = adopted
            while len(adopted.again) < adopted_kills:
                daemon.end(signal.SIGKILL)
                daemon.start()
                # a child that is taken over proves itself as before
                daemon.settle(1, "^up")
                for name in names:
                    daemon.kill_one(name, adopted)
                    daemon.settle(1, " ready ")
        except TimeoutError as e:
            at.why = str(e)
        finally:
            daemon.end()
    return mine, adopted


def theirs(name: str, count: int, kills: int) -> Took:
    """Another supervisor with the same children."""
    took = Took()
    if not peers.there(name):
        took.why = peers.MISSING
        return took
    names = [f"c{i}" for i in range(count)]
    with directory() as (where, births):
        if name == "supervisord":
            argv = peers.supervisord(where, names, births.path, free_port())
        else:
            argv = peers.circus(where, names, births.path, free_ports(2), "debug")
        found = Supervised(argv, where, peers.SEEN[name], births, both=True)
        found.start()
        try:
            found.born(names)
            # a child that dies within its first second counts as not started
            found.rest(2.0)
            for i in range(kills):
                found.kill_one(names[i % count], took)
        except TimeoutError as e:
            took.why = str(e)
        finally:
            # an orderly stop takes some of them half a minute; the children are ended with the directory
            found.end(signal.SIGKILL)
    return took


def all_theirs(counts: Sequence[int]) -> dict[int, dict[str, Took]]:
    """By number of children. Those that mostly sleep at the same time; then systemd, which is quick, alone."""
    with ThreadPoolExecutor(len(PEER_KILLS) * len(counts)) as pool:
        asked = {(n, name): pool.submit(theirs, name, n, kills) for n in counts for name, kills in PEER_KILLS.items()}
    in_box = boxed.systemd(counts, KILLS)
    return {n: {**{name: asked[n, name].result() for name in PEER_KILLS}, "systemd": in_box[n]} for n in counts}


def measure(wanted: Set[str]) -> Iterator[Row]:
    rows: dict[int, tuple[Row, Row]] = {}
    with deployed_etcd() as etcd:
        for count, more in SIZES:
            ours, taken = ({f"{name}{more}" for name in names} & wanted for names in (MINE, ADOPTED))
            if not ours | taken:
                continue
            adopted_kills = max(ADOPTED_KILLS, count) if taken else 0
            mine, adopted = own(etcd.url, count, KILLS if ours else 0, adopted_kills)
            if taken:
                yield Row(f"adopted-death-seen{more}", adopted.held, NOBODY, adopted.note)
                yield Row(f"respawn-adopted{more}", tuple(adopted.again), NOBODY, adopted.note)
            if ours:
                rows[count] = (
                    Row(f"child-death-seen{more}", mine.held, note=mine.note),
                    Row(f"respawn{more}", tuple(mine.again), note=mine.note),
                )
                yield from rows[count]
    if rows:
        others = all_theirs(tuple(rows))
        for count, (seen, again) in rows.items():
            by = others[count].items()
            yield replace(seen, peers=tuple(peer(n, took.seen, 0.99, took.note) for n, took in by))
            yield replace(again, peers=tuple(peer(n, took.again, 0.5, took.note) for n, took in by))
