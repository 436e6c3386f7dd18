"""Work that goes on in a thread while a test looks at what comes of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def beside(work: Callable[[threading.Event], None], join_s: float = 10.0) -> Iterator[None]:
    """`work` is told by the event that it is over, and gets `join_s` seconds to end."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(join_s)
