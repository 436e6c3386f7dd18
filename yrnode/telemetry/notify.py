"""Tell systemd how the daemon is: sd_notify(3) on the standard library. Without systemd all of it does nothing."""

from __future__ import annotations

import os
import socket

LONGEST_STATUS = 300
"""Characters of STATUS=: `systemctl status` shows it on one line."""


def notify(**fields: str) -> bool:
    """Send fields, such as `notify(READY="1", STATUS="serving")`; True if they were sent. Never raises or waits."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address[0] == "@":
        address = "\0" + address[1:]
    message = "\n".join(f"{name}={' '.join(value.split())}" for name, value in fields.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as s:
            s.sendto(message.encode("utf-8", "replace"), address)
    except OSError:
        return False
    return True


def watchdog_s() -> float | None:
    """Seconds within which systemd expects `WATCHDOG=1` of this process, None without a watchdog."""
    try:
        if int(os.environ.get("WATCHDOG_PID", os.getpid())) != os.getpid():
            return None
        seconds = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
    except ValueError:
        return None
    return seconds if seconds > 0 else None


class Teller:
    """Says what has changed since it last said something. What could not be sent is said again the next time."""

    def __init__(self) -> None:
        self._rounds = 0
        self._status = ""
        self._stopping = False

    def tell(self, rounds: int, status: str, stop_s: float | None = None) -> bool:
        """`rounds`: how many the loop has made; only a further one feeds the watchdog, and the first is READY.

        `status`: one line for people. `stop_s`: once it stops, the seconds that it may still take.
        Whether READY has been said.
        """
        status = status if len(status) <= LONGEST_STATUS else status[:LONGEST_STATUS] + "…"
        fields = {}
        if rounds > self._rounds:
            fields = {"WATCHDOG": "1"} if self._rounds else {"READY": "1", "WATCHDOG": "1"}
        if status != self._status:
            fields["STATUS"] = status
        if stop_s is not None:
            if not self._stopping:
                fields["STOPPING"] = "1"
            if stop_s > 0 and rounds > self._rounds:
                fields["EXTEND_TIMEOUT_USEC"] = str(int(stop_s * 1e6))
        if fields and notify(**fields):
            self._rounds, self._status = rounds, status
            self._stopping = self._stopping or stop_s is not None
        return self._rounds > 0
