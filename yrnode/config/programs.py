"""Where the programs of `bin` are."""

import os
import shutil
import sys
from pathlib import Path

from yrnode.model.errors import UsageError


def program(argv: tuple[str, ...], search: str | None = None) -> tuple[str, ...]:
    """`argv` with its first word as an absolute path.

    A name is looked up beside yrnode's own interpreter, then in `search`, which is PATH when left out. A path is
    taken as it is. Raises UsageError when there is no such program, or it may not be run.
    """
    first, *rest = argv
    if "/" in first:
        if not (os.path.isfile(first) and os.access(first, os.X_OK)):
            raise UsageError(f"{first} is no program; correct its path under bin: in the cluster file")
        return (first, *rest)
    beside = str(Path(sys.executable).parent)
    found = shutil.which(first, path=beside) or shutil.which(first, path=search)
    if found is None:
        raise UsageError(f"{first} is neither in {beside} nor in PATH; install it, or name its path under bin:")
    return (os.path.abspath(found), *rest)
