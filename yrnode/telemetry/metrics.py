"""Prometheus metrics: what a snapshot shows at scrape time, and a few counts that only grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from yrnode.model.cause import Reason
from yrnode.model.group import GroupKind, Phase, Stage
from yrnode.model.snapshot import GroupView, Snapshot
from yrnode.model.state import Plane, State
from yrnode.model.verdict import Tally, Verdict
from yrnode.policy import causes, component, gather, readiness, recovery
from yrnode.policy.differs import differences
from yrnode.policy.hits import WINDOW_S, Hits, Meaning, looks
from yrnode.telemetry.daemon import DaemonCollector
from yrnode.telemetry.exposition import Exposition

RESTART_REASONS = (
    Reason.EXITED,
    Reason.CHECK,
    Reason.HANG,
    Reason.START_TIMEOUT,
    Reason.START_FAILED,
    Reason.GROUP,
    Reason.OPERATOR,
)

_VERDICTS = {Verdict.OK: 1.0, Verdict.FAIL: 0.0, Verdict.UNKNOWN: -1.0}
_RECOVERY_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800)
_LOOP_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    """`snapshot` is called at each scrape. The rest is told by the node as it happens: `hits` by its checks."""

    def __init__(self, node: str, version: str, snapshot: Callable[[], Snapshot]) -> None:
        # the `_created` series would double the counters and no contract has them
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._node = node
        self._snapshot = snapshot
        self.hits = Hits()
        self._recovering = recovery.Known()
        self._exposition = Exposition()
        self._registry = CollectorRegistry()
        self._restarts = Counter(
            "yrnode_component_restarts",
            "Times that a running component was ended to be started again, by the reason.",
            ["node", "component", "plane", "reason"],
            registry=self._registry,
        )
        self._removed = Counter(
            "yrnode_residue_removed",
            "Leftovers of ended instances that were removed: processes, files, shared memory.",
            ["node", "component", "plane", "kind"],
            registry=self._registry,
        )
        self._recovery = Histogram(
            "yrnode_recovery_seconds",
            "Seconds from the first evidence of a fault to each phase of the recovery, of a group or of a component "
            "that restarts alone.",
            ["node", "group", "component", "plane", "phase"],
            buckets=_RECOVERY_BUCKETS,
            registry=self._registry,
        )
        self._loop = Histogram(
            "yrnode_loop_duration_seconds",
            "Seconds that one round of the loop took.",
            ["node"],
            buckets=_LOOP_BUCKETS,
            registry=self._registry,
        ).labels(node)
        self._registry.register(_FromSnapshot(node, version, snapshot, self.hits))
        self._registry.register(DaemonCollector(node))

    def restarted(self, component: str, plane: str, reason: Reason) -> None:
        """Count one restart of a component."""
        self._restarts.labels(self._node, component, plane, reason.value).inc()

    def removed(self, component: str, plane: str, kind: str, count: int) -> None:
        """Count leftovers of a component's ended instances. From any thread."""
        self._removed.labels(self._node, component, plane, kind).inc(count)

    def follow(self, s: Snapshot) -> None:
        """Observe the recoveries that a round's snapshot shows."""
        self._recovering, steps = recovery.follow(self._recovering, s)
        for step in steps:
            plane = _plane(step, s).value
            self._recovery.labels(self._node, step.group, step.component, plane, step.phase).observe(step.seconds)

    def observe_loop(self, seconds: float) -> None:
        self._loop.observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format."""
        for c in self._snapshot().components.values():
            for reason in RESTART_REASONS:
                # a series that is there from the start at 0 lets a rate see its first step
                self._restarts.labels(self._node, c.name, c.plane.value, reason.value)
        return self._exposition.text(self._registry.collect())


class _FromSnapshot(Collector):
    def __init__(self, node: str, version: str, snapshot: Callable[[], Snapshot], hits: Hits) -> None:
        self._node = node
        self._version = version
        self._snapshot = snapshot
        self._hits = hits

    def describe(self) -> Iterable[Metric]:
        # without this the registry would take a snapshot before there is one
        return []

    def collect(self) -> Iterator[Metric]:
        s = self._snapshot()
        yield from self._components(s)
        yield from self._checks(s)
        yield from self._cache(s)
        generation = _gauge("group_generation", "Number of the group's current life.", "node", "group")
        stage = _gauge(
            "group_stage", "1 for the stage that the group is in, 0 for the others.", "node", "group", "stage"
        )
        for g in s.groups.values():
            generation.add_metric([self._node, g.name], g.record.n)
            for one in Stage:
                stage.add_metric([self._node, g.name, one.value], float(one is g.record.stage))
        yield generation
        yield stage
        store = _gauge("store_available", "1 while the store (etcd) answers.", "node")
        store.add_metric([self._node], float(s.store_available))
        yield store
        yield from self._peers(s)
        refuses = _gauge("store_refuses_writes", "1 while the store has an alarm and takes no writes.", "node")
        refuses.add_metric([self._node], float(s.store_refusal is not None))
        yield refuses
        build = _gauge("build_info", "Always 1; the version of yrnode is a label.", "node", "version")
        build.add_metric([self._node, self._version], 1.0)
        yield build

    def _peers(self, s: Snapshot) -> Iterator[Metric]:
        """Nobody knows while the shared keys cannot be read, so there is no series then."""
        up = _gauge("peer_up", "1 while the peer's key is in the store, 0 when it is gone.", "node", "peer")
        differs = _gauge("peer_differs", "In how many things the peer differs from this node.", "node", "peer")
        waits = _gauge(
            "group_waits_for", "1 while the group's start waits for the peer, else 0.", "node", "group", "peer"
        )
        own = s.board.nodes.get(s.me)
        for name in s.others if s.fresh else ():
            peer = s.board.nodes.get(name)
            up.add_metric([self._node, name], float(peer is not None))
            if own is not None and peer is not None:
                differs.add_metric([self._node, name], len(differences(own, peer)))
        for g in s.groups.values() if s.fresh else ():
            for name, missed in _awaited(g, s).items():
                waits.add_metric([self._node, g.name, name], float(missed))
        yield up
        yield differs
        yield waits

    def _components(self, s: Snapshot) -> Iterator[Metric]:
        labels = ("node", "component", "plane")
        up = _gauge("component_up", "1 while the component is ready, else 0.", *labels)
        state = _gauge(
            "component_state", "1 for the state that the component is in, 0 for the others.", *labels, "state"
        )
        wanted = _gauge("component_wanted", "1 while the component is to run, 0 while an operator stops it.", *labels)
        cause = _gauge(
            "component_cause", "Always 1; a label says why the component is in its state.", *labels, "reason"
        )
        ready = _gauge("node_ready", "1 while every component that this node must run is ready.", "node")
        ready.add_metric([self._node], float(readiness.ready(s)))
        for c in s.components.values():
            own = [self._node, c.name, c.plane.value]
            up.add_metric(own, float(c.state is State.READY and c.death is None))
            wanted.add_metric(own, float(component.wanted(c, s)))
            if (found := causes.current(c, s)) is not None:
                reason = found.reason if found.component in ("", c.name) else Reason.GROUP
                cause.add_metric([*own, reason.value], 1.0)
            for one in State:
                state.add_metric([*own, one.value], float(one is c.state))
        yield up
        yield state
        yield wanted
        yield cause
        yield ready

    def _checks(self, s: Snapshot) -> Iterator[Metric]:
        labels = ("node", "component", "plane", "check")
        verdict = _gauge("check_verdict", "Latest verdict of the check: 1 ok, 0 fail, -1 unknown.", *labels)
        took = _gauge("check_duration_seconds", "Seconds that the check's latest probe took.", *labels)
        node = _gauge(
            "node_check_verdict",
            "Latest verdict of a check of the node itself, as above.",
            "node",
            "check",
        )
        for name, tally in s.node.items():
            node.add_metric([self._node, name], _VERDICTS[tally.result.verdict])
        for c in s.components.values():
            for check in c.spec.checks:
                tally = c.checks.get(check.name, Tally())
                own = [self._node, c.name, c.plane.value, check.name]
                verdict.add_metric(own, _VERDICTS[tally.result.verdict])
                took.add_metric(own, tally.result.took_s)
        yield verdict
        yield took
        yield node

    def _cache(self, s: Snapshot) -> Iterator[Metric]:
        """A rank that has not been read has no series here, and a rate of nothing has none."""
        labels = ("node", "component", "plane")
        ratio = _gauge(
            "cache_hit_ratio",
            "Share of the tokens asked of a cache that it had; effective: of all that were asked, either.",
            *labels,
            "tier",
            "window",
        )
        tokens = CounterMetricFamily(
            "yrnode_cache_tokens", "Tokens asked of a cache, and found there.", labels=(*labels, "tier", "what")
        )
        means = _gauge("cache_meaning", "1 for what the latest window means, 0 for the others.", *labels, "meaning")
        for look in looks(self._hits, s, WINDOW_S):
            own = [self._node, look.rank, Plane.ENGINE.value]
            for one in Meaning:
                means.add_metric([*own, one.value], float(one is look.meaning))
            for window, counts in ((f"{WINDOW_S:.0f}s", look.window), ("total", look.total)):
                for tier in ("local", "external", "effective"):
                    share = None if counts is None else getattr(counts, tier)
                    if share is not None:
                        ratio.add_metric([*own, tier, window], share)
            for tier in ("local", "external"):
                for what in ("queries", "hits"):
                    tokens.add_metric([*own, tier, what], getattr(look.total, f"{tier}_{what}"))
        yield ratio
        yield tokens
        yield means


def _plane(step: recovery.Step, s: Snapshot) -> Plane:
    """A group's is that of its members."""
    if step.component:
        return s.components[step.component].plane
    return Plane.CACHE if s.groups[step.group].kind is GroupKind.CACHE else Plane.ENGINE


def _awaited(g: GroupView, s: Snapshot) -> dict[str, bool]:
    """By node, whether the group's start waits for it. What an operator holds is not waited for."""
    found = dict.fromkeys(dict.fromkeys((*g.nodes, *g.record.members)), False)
    if g.record.stage is Stage.STOP and g.wanted:
        told = s.board.phases(g.name)
        for name, _ in gather.awaited(g, s):
            found[name] = name not in told or told[name].phase is not Phase.HELD
    return found


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"yrnode_{name}", text, labels=labels)
