"""What can go wrong with the store. None of these ever means "the comparison failed"."""

from __future__ import annotations


class StoreError(Exception):
    """Any failure of the store, as one line that names the endpoint."""

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code  # gRPC's number, where etcd gave one


class StoreUnavailable(StoreError):
    """It may heal by itself. After a put, delete or txn the outcome is unknown, unless `unsent` is true."""

    def __init__(self, text: str, *, code: int | None = None, unsent: bool = False) -> None:
        super().__init__(text, code=code)
        self.unsent = unsent


class StoreRefused(StoreError):
    """Asking again will not help: permission, no space, bad request. Nothing was done."""


class RevisionGone(StoreRefused):
    """The revision asked for was compacted, or this store has never reached it."""


class LeaseGone(StoreRefused):
    """The lease has expired or was revoked."""
