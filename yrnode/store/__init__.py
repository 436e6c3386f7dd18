"""The store: etcd's keys, leases and watches behind one small interface. The only room that knows etcd's API.

Nothing here loads an HTTP client; `yrnode.store.gateway` does.
"""

from yrnode.store.errors import LeaseGone, RevisionGone, StoreError, StoreRefused, StoreUnavailable
from yrnode.store.interface import (
    Alarm,
    Compare,
    Delete,
    Event,
    Get,
    KeyValue,
    Listing,
    Op,
    Put,
    Status,
    Store,
    TxnResult,
    absent,
    create_is,
    mod_is,
    prefix_empty,
    present,
    unchanged,
    value_is,
    version_is,
)
from yrnode.store.keys import ClusterKeys, DatasystemKeys, ring_has
from yrnode.store.lease import KeptLease
from yrnode.store.watch import Watch

__all__ = [
    "Alarm",
    "ClusterKeys",
    "Compare",
    "DatasystemKeys",
    "Delete",
    "Event",
    "Get",
    "KeptLease",
    "KeyValue",
    "LeaseGone",
    "Listing",
    "Op",
    "Put",
    "RevisionGone",
    "Status",
    "Store",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "TxnResult",
    "Watch",
    "absent",
    "create_is",
    "mod_is",
    "prefix_empty",
    "present",
    "ring_has",
    "unchanged",
    "value_is",
    "version_is",
]
