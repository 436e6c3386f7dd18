"""Which member of which cluster etcd's write-ahead log is of: each of its files says so at its head.

A file is frames: eight bytes, of which 56 bits are the length, then a record in protobuf's encoding, then padding.
"""

from __future__ import annotations

import struct
from pathlib import Path

_HEAD = 4096
_METADATA = 1
_TYPE, _DATA = 1, 3
_MEMBER, _CLUSTER = 1, 2


def identity(folder: Path) -> tuple[int, int] | None:
    """(cluster, member), etcd's own numbers; None where no file of the folder says it."""
    try:
        for path in sorted(folder.glob("*.wal")):
            with open(path, "rb") as f:
                found = _metadata(f.read(_HEAD))
            if found:
                return found
    except (OSError, ValueError, IndexError, struct.error):
        pass
    return None


def _metadata(head: bytes) -> tuple[int, int] | None:
    at = 0
    # the first record is a checksum, the second what is looked for
    for _ in range(2):
        (frame,) = struct.unpack_from("<Q", head, at)
        length = frame & ((1 << 56) - 1)
        padding = (frame >> 56) & 7 if frame >> 63 else 0
        record = _fields(head[at + 8 : at + 8 + length])
        data = record.get(_DATA)
        if record.get(_TYPE) == _METADATA and isinstance(data, bytes):
            ids = _fields(data)
            cluster, member = ids.get(_CLUSTER), ids.get(_MEMBER)
            return (cluster, member) if isinstance(cluster, int) and isinstance(member, int) else None
        at += 8 + length + padding
    return None


def _fields(message: bytes) -> dict[int, int | bytes]:
    """By field number, of a message that holds numbers and bytes alone."""
    found: dict[int, int | bytes] = {}
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        value, at = _number(message, at)
        if key & 7 == 2:
            found[key >> 3] = message[at : at + value]
            at += value
        elif key & 7 == 0:
            found[key >> 3] = value
        else:
            raise ValueError(f"wire type {key & 7}")
    return found


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
