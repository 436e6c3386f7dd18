"""The end of whoever reads our output: `yrnode logs -f | head -1` ends with head, also where nothing is written."""

from __future__ import annotations

import select
import signal
import threading
from types import FrameType


def end_with_it() -> None:
    """From now on BrokenPipeError in the main thread once nobody can read standard output any more."""
    main = threading.main_thread()
    if threading.current_thread() is not main:
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise BrokenPipeError

    signal.signal(signal.SIGPIPE, end)

    def watch() -> None:
        poll = select.poll()
        # no event is asked for: an error or a hang-up is told always, and a file has neither
        poll.register(1, 0)
        poll.poll()
        signal.pthread_kill(main.ident or 0, signal.SIGPIPE)

    threading.Thread(target=watch, daemon=True).start()
