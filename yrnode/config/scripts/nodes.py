"""The machines that the scripts speak of: by address, and where that is not known, by what they start."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from yrnode.config.scripts.notes import Notes, add
from yrnode.config.scripts.reader import Found
from yrnode.config.scripts.vllm import Server, is_address

_LETTERS = {"producer": "p", "consumer": "d"}


@dataclass
class Draft:
    """A node as far as it is known."""

    name: str
    address: str
    """Empty where it is not known."""
    servers: list[Server] = field(default_factory=list)

    @property
    def nic(self) -> str:
        """Its network interface; empty where it is not known."""
        return next((server.nic for server in self.servers if server.nic), "")

    @property
    def loopback(self) -> bool:
        """Whether its address is a loopback one."""
        return bool(self.address) and IPv4Address(self.address).is_loopback


class Nodes:
    """All nodes, in the order of their groups."""

    def __init__(self) -> None:
        self.all: list[Draft] = []
        self.by_server: dict[int, Draft] = {}

    def named(self, letter: str) -> str:
        """The next free name: p0, p1, d0, n0 …"""
        return f"{letter}{sum(draft.name[0] == letter for draft in self.all)}"

    def at(self, address: str) -> Draft | None:
        """The node with this address."""
        return next((draft for draft in self.all if address and draft.address == address), None)

    def of(self, server: Server) -> Draft:
        """The node of a server."""
        return self.by_server[id(server)]

    def place(self, server: Server) -> None:
        """Put a server on its node, which is new where nobody has named it."""
        here = self.at(server.address) if server.address else self._by_place(server)
        if here is None:
            here = Draft(self.named(_LETTERS.get(server.role, "n")), server.address)
            self.all.append(here)
        here.servers.append(server)
        self.by_server[id(server)] = here

    def _by_place(self, server: Server) -> Draft | None:
        same = (d for d in self.all for s in d.servers if s.node and s.node == server.node and s.role == server.role)
        return next(same, None)

    def add(self, address: str, notes: Notes, file: str, line: int) -> Draft:
        """The node with this address; a new one, and told, where no rank is on it."""
        found = self.at(address)
        if found is None:
            found = Draft(self.named("n"), address)
            self.all.append(found)
            text = f"{found.name}: {address}"
            add(notes.open, file, line, text, "no vllm serve among the files is on it; it gets a worker and no rank")
        return found


def nodes_of(groups: Iterable[list[Server]], found: Found) -> Nodes:
    """The nodes of all servers. One whose address is not known gets the only address that is nobody's."""
    nodes = Nodes()
    for servers in groups:
        for server in servers:
            if not server.address and server.first == 0 and is_address(server.head):
                server.address = server.head
            nodes.place(server)
    hosts = [w.host for w in found.workers] + [e.host for e in found.etcds]
    free = {host for host in hosts if is_address(host) and nodes.at(host) is None}
    unknown = [draft for draft in nodes.all if not draft.address]
    if len(unknown) == 1 and len(free) == 1:
        unknown[0].address = free.pop()
    return nodes
