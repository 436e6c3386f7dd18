"""Names of the keys: yrnode's own and those of the datasystem that yrnode reads or clears."""

from __future__ import annotations

from dataclasses import dataclass


def _name(text: str) -> str:
    if not text or "/" in text:
        raise ValueError(f"{text!r} cannot be part of a key: it must be non-empty and without '/'")
    return text


@dataclass(frozen=True, slots=True)
class ClusterKeys:
    """Keys of one yrnode cluster, all under `/yrnode/<cluster>/`. Names ending in a slash are prefixes."""

    cluster: str

    def __post_init__(self) -> None:
        _name(self.cluster)

    @property
    def root(self) -> str:
        return f"/yrnode/{self.cluster}/"

    @property
    def store(self) -> str:
        """A uuid, made once: another one means that the store was wiped."""
        return self.root + "store"

    def probe(self, node: str) -> str:
        """What a node's own checks write and read."""
        return f"{self.root}probe/{_name(node)}"

    @property
    def nodes(self) -> str:
        return self.root + "nodes/"

    def node(self, node: str) -> str:
        return self.nodes + _name(node)

    @property
    def groups(self) -> str:
        return self.root + "groups/"

    def record(self, group: str) -> str:
        return f"{self.groups}{_name(group)}/record"

    def members(self, group: str) -> str:
        return f"{self.groups}{_name(group)}/members/"

    def member(self, group: str, node: str) -> str:
        return self.members(group) + _name(node)

    @property
    def intents(self) -> str:
        return self.root + "intents/"

    def intent(self, target: str) -> str:
        """`target` is a node, a group or a component such as `rank/prefill/0`, so it may have slashes."""
        if not target:
            raise ValueError("an intent needs a target")
        return self.intents + target

    @property
    def fences(self) -> str:
        return self.root + "fenced/"

    def fence(self, node: str) -> str:
        return self.fences + _name(node)

    def parts(self, key: str) -> tuple[str, ...]:
        """What a key names, e.g. ("groups", "prefill", "members", "n1"), ("intents", "rank/prefill/0");
        empty for a key of somebody else."""
        if not key.startswith(self.root):
            return ()
        head, _, rest = key[len(self.root) :].partition("/")
        if head == "groups":
            return (head, *rest.split("/"))
        return (head, rest) if rest else (head,)


@dataclass(frozen=True, slots=True)
class DatasystemKeys:
    """Keys that the datasystem's workers keep; `cluster_name` is the worker's flag of that name."""

    cluster_name: str = ""

    @property
    def root(self) -> str:
        """All of it. Deleting under a live worker kills the worker."""
        return f"/{_name(self.cluster_name)}/datasystem/" if self.cluster_name else "/datasystem/"

    @property
    def workers(self) -> str:
        return self.root + "cluster/"

    def worker(self, address: str) -> str:
        """Leased; `<epoch-ns>;<state>[;host_id]`. `address` is host:port as in the worker's flag."""
        return self.workers + _name(address)

    @property
    def ring(self) -> str:
        return self.root + "ring/"


def ring_has(value: bytes, address: str) -> bool:
    """Whether the worker at `address` (host:port) is a member in a ring as stored by the datasystem.

    The ring is protobuf, addresses are keys of a map: a tag, the length, the text. Asking for these together keeps
    10.0.0.1:1848 from being found in 10.0.0.1:18481 or in 110.0.0.1:1848.
    """
    text = address.encode()
    return bool(text) and b"\x0a" + _varint(len(text)) + text in value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def range_end(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix; b"\\0" means "to the end of all keys"."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b"\0"
