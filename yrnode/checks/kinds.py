"""Every kind of check by its name."""

from __future__ import annotations

from collections.abc import Callable

from yrnode.checks.base import Check, Tools
from yrnode.checks.completion import CompletionCheck
from yrnode.checks.etcd import EtcdReadCheck, EtcdWriteCheck
from yrnode.checks.http import HttpCheck
from yrnode.checks.kv import KvCheck
from yrnode.checks.process import ProcessCheck
from yrnode.checks.process_set import ProcessSetCheck
from yrnode.checks.ring import RingCheck, WorkerKeyCheck
from yrnode.model.spec import CheckSpec

KINDS: dict[str, Callable[[CheckSpec, Tools], Check]] = {
    "process": ProcessCheck,
    "process-set": ProcessSetCheck,
    "http": HttpCheck,
    "completion": CompletionCheck,
    "etcd-read": EtcdReadCheck,
    "etcd-write": EtcdWriteCheck,
    "worker-key": WorkerKeyCheck,
    "worker-ring": RingCheck,
    "worker-kv": KvCheck,
}


def make(spec: CheckSpec, tools: Tools) -> Check:
    return KINDS[spec.kind](spec, tools)
