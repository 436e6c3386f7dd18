"""Tell systemd how the daemon is: sd_notify(3) on the standard library. Without systemd all of it does nothing."""

from __future__ import annotations

import os
import socket


def notify(**fields: str) -> bool:
    """Send fields, such as `notify(READY="1", STATUS="serving")`; True if they were sent. Never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address[0] == "@":
        address = "\0" + address[1:]
    message = "\n".join(f"{name}={' '.join(value.split())}" for name, value in fields.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as s:
            s.settimeout(1.0)
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
