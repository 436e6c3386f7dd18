"""The store over etcd's JSON gateway, which every etcd since 3.4 serves on its client port."""

from __future__ import annotations

from collections.abc import Sequence

from yrnode.store.credentials import NONE, Credentials
from yrnode.store.etcd import EtcdStore
from yrnode.store.transport import Transport


class EtcdGateway(EtcdStore):
    """endpoints: URLs of the members' client ports. timeout_s bounds every call, over all endpoints together."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout_s: float = 2.0,
        watch_idle_s: float = 2.0,
        credentials: Credentials = NONE,
    ) -> None:
        super().__init__(
            Transport(endpoints, timeout_s=timeout_s, credentials=credentials), watch_idle_s=watch_idle_s
        )
