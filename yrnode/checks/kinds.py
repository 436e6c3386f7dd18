"""Every kind of check by its name."""

from __future__ import annotations

import time
from collections.abc import Callable

from yrnode.checks.base import Check, Target, Tools
from yrnode.checks.canary import CanaryCheck
from yrnode.checks.completion import CompletionCheck
from yrnode.checks.each import EachEngine
from yrnode.checks.engine import EngineCheck
from yrnode.checks.etcd import EtcdAlarmCheck, EtcdQuorumCheck, EtcdReadCheck, EtcdWriteCheck
from yrnode.checks.http import HttpCheck
from yrnode.checks.kv import KvCheck
from yrnode.checks.liveness import LivenessCheck
from yrnode.checks.process import ProcessCheck
from yrnode.checks.process_set import ProcessSetCheck
from yrnode.checks.progress import ProgressCheck
from yrnode.checks.retrieval import RetrievalCheck
from yrnode.checks.ring import RingCheck, WorkerKeyCheck
from yrnode.model.spec import CheckSpec
from yrnode.model.verdict import Result, Verdict, unknown

KINDS: dict[str, Callable[[CheckSpec, Tools], Check]] = {
    "process": ProcessCheck,
    "process-set": ProcessSetCheck,
    "http": HttpCheck,
    "completion": CompletionCheck,
    "canary": CanaryCheck,
    "retrieval": RetrievalCheck,
    "engine": EngineCheck,
    "progress": ProgressCheck,
    "etcd-quorum": EtcdQuorumCheck,
    "etcd-read": EtcdReadCheck,
    "etcd-write": EtcdWriteCheck,
    "etcd-alarms": EtcdAlarmCheck,
    "worker-liveness": LivenessCheck,
    "worker-key": WorkerKeyCheck,
    "worker-ring": RingCheck,
    "worker-kv": KvCheck,
}
_EACH = ("canary", "retrieval")
"""What asks for completions."""


def make(spec: CheckSpec, tools: Tools) -> Check:
    kind = KINDS[spec.kind]
    several = spec.kind in _EACH and spec.params.get("ranks")
    return _Attended(EachEngine(spec, tools, kind) if several else kind(spec, tools), tools)


class _Attended:
    """A check whose failures are void when this daemon itself was held up meanwhile."""

    def __init__(self, check: Check, tools: Tools) -> None:
        self._check = check
        self._pulse = tools.pulse

    @property
    def asker(self) -> int | None:
        return self._check.asker

    async def probe(self, target: Target) -> Result:
        self._pulse.start()
        began = time.monotonic()
        result = await self._check.probe(target)
        held_s = self._pulse.held_s(began) if result.verdict is Verdict.FAIL else 0.0
        if held_s:
            return unknown(f"this daemon itself was held up for {held_s:.1f} s; then: {result.evidence}")
        return result

    async def close(self) -> None:
        await self._check.close()
