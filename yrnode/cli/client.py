"""Asks the daemon, over its Unix socket or else over TCP. Standard library only, and never through a proxy."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from yrnode.cli.errors import Down, Late, NotGood
from yrnode.cli.place import Place
from yrnode.model.errors import UsageError
from yrnode.process.lock import NAME, held

_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (a listener's wildcard is asked by loopback)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the daemon's control socket; `timeout` in seconds."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Client:
    """One request a connection; `timeout` seconds for each step of it."""

    def __init__(self, place: Place, timeout: float = 5.0) -> None:
        self._place = place
        self._timeout = timeout

    def get(self, path: str) -> tuple[int, Any]:
        """HTTP status and JSON. Down if nobody answers, NotGood if it is no yrnode's answer."""
        with self._ask(path) as response:
            return response.status, _json(response)

    def read(self, path: str) -> Any:
        """JSON of a read that must succeed; the daemon's own words as UsageError when it refuses the question."""
        status, data = self.get(path)
        return _judged(status, data)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Ask for a change; only over the Unix socket."""
        connection = UnixConnection(self._place.socket, self._timeout)
        try:
            connection.connect()
        except PermissionError:
            connection.close()
            raise NotGood(f"{self._place.socket} is for root and the daemon's own user; use sudo") from None
        except OSError:
            connection.close()
            raise self._down() from None
        try:
            whom = {"Yrnode-Node": f"{self._place.cluster}/{self._place.node}"} if self._place.port else {}
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **whom})
            response = connection.getresponse()
            return _judged(response.status, _json(response))
        except TimeoutError:
            late = "does not answer in time; it may still do this when it goes on"
            raise NotGood(f"yrnode on {self._place.node} {late}, see yrnode events") from None
        except (OSError, http.client.HTTPException) as e:
            raise NotGood(f"yrnode broke off ({_said(e)}); what it did is in: yrnode events") from None
        finally:
            connection.close()

    def daemon_pid(self) -> int:
        """The pid that listens on the Unix socket, by the kernel's own word. Down where nobody does."""
        connection = UnixConnection(self._place.socket, self._timeout)
        try:
            connection.connect()
            raw = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            raise self._down() from None
        finally:
            connection.close()
        return int(struct.unpack("3i", raw)[0])

    def stream(self, path: str) -> Iterator[dict[str, Any] | None]:
        """Server-sent events as they come, after a None once connected. Ends with the daemon; Down if there is none.

        The daemon sends a comment each 15 s, so three times that without a byte means that it hangs.
        """
        with self._ask(path, {"Accept": "text/event-stream"}, read_timeout=45.0) as response:
            if response.status != 200:
                _judged(response.status, _json(response))
            yield None
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    @contextmanager
    def _ask(
        self, path: str, headers: dict[str, str] | None = None, read_timeout: float | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connect()
        try:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            self._must_be_ours(response)
            if read_timeout and connection.sock:
                connection.sock.settimeout(read_timeout)
            yield response
        except TimeoutError:
            raise Late(f"yrnode on {self._place.node} does not answer in time; see its log, or restart it") from None
        except (ConnectionError, http.client.HTTPException) as e:
            raise Down(f"yrnode on {self._place.node} broke off ({_said(e)}); see its log") from None
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host = _LOCAL.get(self._place.host, self._place.host)
        ways: list[http.client.HTTPConnection] = [UnixConnection(self._place.socket, self._timeout)]
        if self._place.port:
            ways.append(http.client.HTTPConnection(host, self._place.port, timeout=self._timeout))
        for connection in ways:
            try:
                connection.connect()
                return connection
            except OSError:
                connection.close()
        raise self._down()

    def _must_be_ours(self, response: http.client.HTTPResponse) -> None:
        who = response.headers.get("Yrnode-Node")
        expected = f"{self._place.cluster}/{self._place.node}"
        if who is None:
            raise Down(
                f"{self._place.host}:{self._place.port} is answered by something else than yrnode; see api.listen"
            )
        if self._place.port and who != expected:
            raise Down(f"yrnode of {expected} does not run: {who} answers instead; check --config and --node")

    def _down(self) -> Down:
        p = self._place
        with contextlib.suppress(OSError):
            if not p.socket.exists() and held(p.state_dir):
                pid = (p.state_dir / NAME).read_text(errors="replace").strip() or "unknown"
                return Down(
                    f"yrnode runs on {p.node} (pid {pid}), but its control socket {p.socket} is gone; it makes a new "
                    f"one within seconds where it can, else end it alone: kill -USR1 {pid}, then yrnode run where "
                    "nothing starts it by itself"
                )
        return Down(
            f"yrnode does not run on {p.node or 'this node'}: no answer on {p.socket}; "
            f"start it: systemctl start yrnode, or yrnode run --config {p.file}"
        )


def _json(response: http.client.HTTPResponse) -> Any:
    raw = response.read()
    try:
        return json.loads(raw)
    except ValueError:
        raise NotGood("yrnode's answer is not JSON; are the command and the daemon of one version?") from None


def _judged(status: int, data: Any) -> Any:
    if status == 200:
        return data
    said = data.get("error", data) if isinstance(data, dict) else data
    if status == 400:
        raise UsageError(str(said))
    if status == 409:
        raise NotGood(str(said))
    raise NotGood(f"yrnode refuses: {said}")


def _said(e: Exception) -> str:
    return str(e) or type(e).__name__
