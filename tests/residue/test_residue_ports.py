"""Whether a port is free, whose it is when not, and ports that clients will not take."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import psutil
import pytest

from tests.support.etcd import free_port as unused_port
from yrnode.residue import ports
from yrnode.residue.ports import ephemeral_range, free_port, listener, why_taken

Listen = Callable[..., int]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Listens on a new port, or on one that is given; returns the port."""
    with ExitStack() as stack:

        def start(host: str = "127.0.0.1", port: int = 0, family: int = socket.AF_INET) -> int:
            sock = stack.enter_context(socket.socket(family))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port or unused_port()))
            sock.listen()
            return int(sock.getsockname()[1])

        yield start


def test_a_free_port_is_free_and_stays_so() -> None:
    port = unused_port()
    assert [why_taken("127.0.0.1", port), why_taken("127.0.0.1", port)] == ["", ""]
    assert listener("127.0.0.1", port) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_names_its_holder(listen: Listen, host: str) -> None:
    port = listen(host)
    assert why_taken("127.0.0.1", port).startswith(f"in use by pid {os.getpid()} (")
    assert "python" in why_taken("127.0.0.1", port) or "pytest" in why_taken("127.0.0.1", port)
    # who wants all addresses is stopped by any
    assert why_taken("0.0.0.0", port).startswith(f"in use by pid {os.getpid()} (")


def test_the_same_port_of_another_address_is_another_port(listen: Listen) -> None:
    port = listen("127.0.0.2")
    assert why_taken("127.0.0.1", port) == ""
    assert listener("127.0.0.1", port) is None
    assert listener("127.0.0.2", port) == os.getpid()


def test_who_listens_on_another_address_is_not_blamed(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    port = listen("127.0.0.2")
    listen("127.0.0.1", port)
    monkeypatch.setattr(
        psutil, "net_connections", _with_pids(psutil.net_connections, {"127.0.0.1": 11, "127.0.0.2": 22})
    )
    assert (listener("127.0.0.1", port), listener("127.0.0.2", port)) == (11, 22)


def _with_pids(real: Callable[[str], list[object]], pids: dict[str, int]) -> Callable[[str], list[object]]:
    def net_connections(kind: str) -> list[object]:
        return [c._replace(pid=pids.get(c.laddr.ip, c.pid)) if c.laddr else c for c in real(kind)]  # type: ignore[attr-defined]

    return net_connections


def test_a_holder_that_cannot_be_seen(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    port = listen()

    def denied(kind: str) -> object:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", denied)
    assert why_taken("127.0.0.1", port) == "in use by a process that cannot be seen from here"


def test_an_address_that_is_not_ours() -> None:
    assert why_taken("192.0.2.1", unused_port()) == "Cannot assign requested address"


def test_ipv6(listen: Listen) -> None:
    try:
        port = listen("::1", family=socket.AF_INET6)
    except OSError as e:
        pytest.skip(f"no IPv6 here: {e}")
    assert why_taken("::1", port).startswith(f"in use by pid {os.getpid()}")
    assert why_taken("127.0.0.1", port) == ""


def test_a_closed_connection_that_lingers_does_not_count(listen: Listen) -> None:
    port = unused_port()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        with socket.create_connection(("127.0.0.1", port)):
            # the server's end closes first, and has to linger
            server.accept()[0].close()
    assert why_taken("127.0.0.1", port) == ""


def test_chosen_ports_are_free_and_not_handed_out_to_clients() -> None:
    low, high = ephemeral_range()
    chosen = {free_port("127.0.0.1") for _ in range(30)}
    assert len(chosen) > 20
    assert all(15000 <= p < 65000 and not low <= p <= high for p in chosen)


def test_a_taken_port_is_not_chosen(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = listen()
    free = unused_port()
    monkeypatch.setattr(ports.random, "sample", lambda candidates, count: [taken, free])
    assert free_port("127.0.0.1") == free
    monkeypatch.setattr(ports.random, "sample", lambda candidates, count: [taken])
    with pytest.raises(OSError, match=r"no free port on 127\.0\.0\.1"):
        free_port("127.0.0.1")
