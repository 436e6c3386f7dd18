"""How the datasystem's client copies between host and NPU: variables with a range, and what they need to do anything.

Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from yrnode.config.cluster import Cluster
from yrnode.config.render import env_layers, env_tables
from yrnode.config.yaml import KeyPath, dotted

Fault = tuple[KeyPath, str]

REMOTE_H2D = "DS_ENABLE_REMOTE_H2D"
POLICIES = ("direct", "ffts")
SIDES = ("H2D", "D2H")
_POLICY_NAMES = tuple(f"DS_{side}_MEMCPY_POLICY" for side in SIDES)
HOST_POOL = "DS_HOST_ACL_SIZE"
DEVICE_POOL = "DS_DEVICE_ACL_SIZE"
_HOST_POOL_BYTES = 2684354560


@dataclass(frozen=True)
class Knob:
    """A number from `least` to `most`. `policy`: it does nothing under another one; `needs`: nor without that."""

    least: int
    most: int | None = None
    policy: str = ""
    needs: str = ""


def _knobs(side: str) -> dict[str, Knob]:
    direct, ffts = f"DS_{side}_PARALLEL", f"DS_{side}_FFTS_PARALLEL"
    workers = f"{direct}_WORKER_NUM"
    return {
        workers: Knob(1, 16, "direct"),
        f"{direct}_AGGREGATE_NUM": Knob(1, 4096, "direct", workers),
        f"{direct}_MAX_PENDING_TASK_NUM": Knob(1, 64, "direct", workers),
        f"{direct}_MIN_BYTES": Knob(0, None, "direct", workers),
        f"{direct}_MAX_INFLIGHT_BATCH_NUM": Knob(1, None, "direct", workers),
        f"{ffts}_WORKER_NUM": Knob(1, 16, "ffts"),
        f"{ffts}_MIN_BYTES": Knob(0, None, "ffts"),
    }


KNOBS = {side: _knobs(side) for side in SIDES}
_RANGES = {
    **{name: knob for knobs in KNOBS.values() for name, knob in knobs.items()},
    HOST_POOL: Knob(0),
    DEVICE_POOL: Knob(0),
    REMOTE_H2D: Knob(0, 1),
}
# Bytes of one request from which on FFTS copies in parallel, where nothing is said.
_FFTS_MIN_BYTES = {"H2D": 134217728, "D2H": 50331648}


def faults(cluster: Cluster) -> Iterator[Fault]:
    """Values out of range in any table; then, for each group on each node, what they say together."""
    wrong = list(_out_of_range(cluster))
    yield from wrong
    if wrong:
        return
    said: set[Fault] = set()
    for name, group in cluster.groups.items():
        for node in (n for n in cluster.nodes if group.ranks.get(n)):
            # what stands for another variable is known only on the host
            layers = env_layers(cluster, name, node)
            here = {v: (path, env[v]) for path, env in layers for v in env if v not in group.unset}
            for fault in _together(cluster, {v: given for v, given in here.items() if "${" not in given[1]}):
                if fault not in said:
                    said.add(fault)
                    yield fault


def _out_of_range(cluster: Cluster) -> Iterator[Fault]:
    for path, env in env_tables(cluster):
        for name, value in env.items():
            if "${" in value:
                continue
            if name in _POLICY_NAMES and value not in POLICIES:
                yield (*path, name), f'"{value}" is no way to copy; write {" or ".join(POLICIES)}'
            knob = _RANGES.get(name)
            if knob is None or _fits(value, knob):
                continue
            range_ = f"from {knob.least} to {knob.most}" if knob.most is not None else f"of {knob.least} or more"
            yield (*path, name), f'"{value}" is out of range; write a whole number {range_}'


def _fits(value: str, knob: Knob) -> bool:
    if not (value.isascii() and value.isdecimal()):
        return False
    return knob.least <= int(value) <= (int(value) if knob.most is None else knob.most)


def _together(cluster: Cluster, env: Mapping[str, tuple[KeyPath, str]]) -> Iterator[Fault]:
    """`env`: each variable's table and value."""
    for side in SIDES:
        yield from _idle(side, env)
    yield from _pools(cluster, env)
    given = env.get(REMOTE_H2D)
    if given is not None and given[1] == "1" and not cluster.datasystem.remote_h2d:
        text = "the workers have no device for it; write datasystem.remote_h2d, from which this follows, or remove it"
        yield (*given[0], REMOTE_H2D), text


def _idle(side: str, env: Mapping[str, tuple[KeyPath, str]]) -> Iterator[Fault]:
    """Knobs that do nothing. With the number of workers put back to 1 the others may stay: so one goes back."""
    policy = f"DS_{side}_MEMCPY_POLICY"
    for name, knob in KNOBS[side].items():
        if name not in env:
            continue
        path = (*env[name][0], name)
        if policy in env and env[policy][1] != knob.policy:
            there = dotted((*env[policy][0], policy))
            yield path, f"it does nothing while {there} is {env[policy][1]}; remove it, or write {knob.policy} there"
        elif knob.needs and knob.needs not in env:
            yield path, f"it does nothing without {knob.needs}; write a number above 1 for that, or remove this"


def _pools(cluster: Cluster, env: Mapping[str, tuple[KeyPath, str]]) -> Iterator[Fault]:
    """Staging memory of FFTS that cannot be enough, whatever the sizes of the objects are.

    On the NPU twice the largest object of each worker is needed, and no size of an object is in the file: only an
    empty pool is too small for certain. On the host it is all that a request copies, of which a request that goes
    parallel has at least the bound below which it does not. Huge pages need none.
    """
    sides = [side for side in SIDES if env.get(f"DS_{side}_MEMCPY_POLICY", ((), ""))[1] == "ffts"]
    if not sides:
        return
    if DEVICE_POOL in env and int(env[DEVICE_POOL][1]) == 0:
        yield (*env[DEVICE_POOL][0], DEVICE_POOL), "ffts stages twice its largest object there; write a size in bytes"
    huge = cluster.datasystem.huge_pages
    if huge and (len(sides) == len(SIDES) or HOST_POOL not in env):
        return
    if HOST_POOL in env and int(env[HOST_POOL][1]) == 0:
        cure = "huge_pages with ffts both ways needs none" if not huge else "only ffts both ways needs none"
        yield (*env[HOST_POOL][0], HOST_POOL), f"ffts stages what it copies there; write a size in bytes ({cure})"
        return
    if huge:
        return
    for side in sides:
        yield from _parallel_host(side, env)


def _parallel_host(side: str, env: Mapping[str, tuple[KeyPath, str]]) -> Iterator[Fault]:
    bound, workers = f"DS_{side}_FFTS_PARALLEL_MIN_BYTES", f"DS_{side}_FFTS_PARALLEL_WORKER_NUM"
    least = int(env[bound][1]) if bound in env else _FFTS_MIN_BYTES[side]
    pool = int(env[HOST_POOL][1]) if HOST_POOL in env else _HOST_POOL_BYTES
    if pool >= least or env.get(workers, ((), ""))[1] == "1":
        return
    at = HOST_POOL if HOST_POOL in env else bound
    text = f"a request that goes parallel copies at least {least} bytes ({bound}), and {HOST_POOL} has {pool}"
    yield (*env[at][0], at), f"{text}; write a larger pool or a smaller bound, or {workers}: 1"
