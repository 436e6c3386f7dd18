"""Children of one test, and proof that they have ended with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.process.lab import Lab, until
from yrnode.residue import orphans


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = Lab(tmp_path)
    yield found
    await found.close()
    await until(lambda: not orphans.find("", tmp_path))
