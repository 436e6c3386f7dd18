"""Delete what the datasystem keeps in the store, while none of its workers lives.

With a live worker this would kill it. So one transaction compares the workers' keys as they were listed and deletes:
a worker that registers in between makes it fail.
"""

from __future__ import annotations

from collections.abc import Collection

from yrnode.store.errors import StoreError
from yrnode.store.interface import Delete, Store, unchanged
from yrnode.store.keys import DatasystemKeys


async def clear_datasystem(store: Store, cluster_name: str, stopped: Collection[str]) -> str:
    """Empty when it is done; else why not. `stopped`: addresses of the workers that are proven gone.

    A key of theirs may still be there, until its lease ends. A key of any other worker means that one may live.
    """
    keys = DatasystemKeys(cluster_name)
    try:
        workers = await store.list(keys.workers)
        others = [kv.key.removeprefix(keys.workers) for kv in workers.items]
        others = [address for address in others if address not in stopped]
        if others:
            return f"the store still has the worker {', '.join(others)}, which is not of this node"
        done = await store.txn(unchanged(workers), [Delete(keys.root, prefix=True)])
    except StoreError as e:
        return str(e)
    return "" if done.succeeded else "a worker has just registered in the store"
