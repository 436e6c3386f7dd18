"""How the datasystem's client copies between host and NPU: variables with a range, and what they need to do anything.

What cannot work is a fault of the file; what only does nothing, or is done another way, is a note. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from yrnode.config.cluster import Cluster
from yrnode.config.render import env_layers, env_tables
from yrnode.config.yaml import KeyPath

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
_WORKERS = {
    (side, policy): f"DS_{side}_{prefix}PARALLEL_WORKER_NUM"
    for side in SIDES
    for policy, prefix in (("direct", ""), ("ffts", "FFTS_"))
}
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
    values = {name: value for name, (_, value) in env.items()}
    sides = _ffts(values)
    if sides and int(values.get(DEVICE_POOL, "1")) == 0:
        yield (*env[DEVICE_POOL][0], DEVICE_POOL), "ffts stages twice its largest object there; write a size in bytes"
    huge = cluster.datasystem.huge_pages
    if "D2H" in sides and _empty(values, huge):
        cure = "huge_pages with ffts both ways needs none" if not huge else "only ffts both ways needs none"
        yield (*env[HOST_POOL][0], HOST_POOL), f"ffts stages what it copies there; write a size in bytes ({cure})"
    elif "D2H" in sides and not huge and not cluster.env_from and (few := _too_few("D2H", values)):
        # what a script sets besides is known only on the host
        at = HOST_POOL if HOST_POOL in env else _bound("D2H")
        yield (*env[at][0], at), few
    if values.get(REMOTE_H2D) == "1" and not cluster.datasystem.remote_h2d:
        text = "the workers have no device for it; write datasystem.remote_h2d, from which this follows, or remove it"
        yield (*env[REMOTE_H2D][0], REMOTE_H2D), text


def notes(given: Mapping[str, str], huge: bool) -> list[tuple[str, str]]:
    """What does nothing, or is not done as it says, in one rank's variables: each with why and the cure.

    It works all the same: H2D copies directly where ffts has no memory. `huge`: the worker has huge pages.
    """
    env = {n: v for n, v in given.items() if n in _POLICY_NAMES or (n in _RANGES and _fits(v, _RANGES[n]))}
    found = [note for side in SIDES for note in _idle(side, env)]
    sides = _ffts(env)
    if "H2D" in sides and _empty(env, huge):
        found.append((HOST_POOL, "ffts has no memory to stage in, so H2D copies directly; write a size in bytes"))
    elif "H2D" in sides and not huge and (few := _too_few("H2D", env)):
        found.append((HOST_POOL if HOST_POOL in env else _bound("H2D"), f"H2D then copies directly: {few}"))
    return found


def _idle(side: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Knobs that do nothing. Where the number of workers is put back to 1, as the guides say, the others may stay."""
    policy = f"DS_{side}_MEMCPY_POLICY"
    for name, knob in KNOBS[side].items():
        if name not in env or env.get(_WORKERS[side, knob.policy]) == "1":
            continue
        if policy in env and env[policy] != knob.policy:
            yield name, f"it does nothing while {policy} is {env[policy]}; remove it, or write {knob.policy} there"
        elif knob.needs and knob.needs not in env:
            yield name, f"it does nothing without {knob.needs}; write a number above 1 for that, or remove this"


def _ffts(env: Mapping[str, str]) -> list[str]:
    return [side for side in SIDES if env.get(f"DS_{side}_MEMCPY_POLICY") == "ffts"]


def _empty(env: Mapping[str, str], huge: bool) -> bool:
    """Whether FFTS has nothing to stage in on the host, and needs it: only both ways on huge pages need nothing."""
    return int(env.get(HOST_POOL, "1")) == 0 and not (huge and len(_ffts(env)) == len(SIDES))


def _bound(side: str) -> str:
    return f"DS_{side}_FFTS_PARALLEL_MIN_BYTES"


def _too_few(side: str, env: Mapping[str, str]) -> str:
    """Why FFTS' memory on the host cannot be enough, whatever the sizes of the objects are; empty where it may be.

    It holds all that a request copies, and one that goes parallel copies at least the bound below which it does not.
    """
    bound, workers = _bound(side), _WORKERS[side, "ffts"]
    least = int(env.get(bound, _FFTS_MIN_BYTES[side]))
    pool = int(env.get(HOST_POOL, _HOST_POOL_BYTES))
    if pool >= least or env.get(workers) == "1":
        return ""
    text = f"a request that goes parallel copies at least {least} bytes ({bound}), and {HOST_POOL} has {pool}"
    return f"{text}; write a larger pool or a smaller bound, or {workers}: 1"
