"""The end of whoever reads our output: `yrnode logs -f | head -1` ends with head, also where nothing is written."""

from __future__ import annotations

import os
import select
import threading

CODE = 1
"""As after a write that nobody reads."""


def end_with_it() -> None:
    """From now on this process ends when nobody can read its standard output any more: it only follows."""

    def watch() -> None:
        poll = select.poll()
        # no event is asked for: an error or a hang-up is told always, and a file has neither
        poll.register(1, 0)
        poll.poll()
        os._exit(CODE)

    threading.Thread(target=watch, daemon=True).start()
