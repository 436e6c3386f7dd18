"""Before a start: nothing of an earlier instance may be left, and nobody may sit on what the new one needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from yrnode.model.cause import Cause, Reason
from yrnode.model.spec import ComponentSpec
from yrnode.residue import files, orphans, ports


async def clear(spec: ComponentSpec, owner: str, home: Path) -> Cause | None:
    """Remove what is proven ours and unused. A cause when something is in the way that must not be removed."""
    left = await orphans.end(orphans.mark_of(owner, spec.name), home, spec.stop_grace_s)
    if left:
        return _blocked(spec, "an earlier instance cannot be ended", ", ".join(map(str, left)))
    for need in spec.ports:
        taken = await asyncio.to_thread(ports.why_taken, need.host, need.port)
        if taken:
            where = f"port {need.host}:{need.port} ({need.purpose})"
            return _blocked(spec, f"{where} is not free: end its holder or change {need.purpose}", taken)
    try:
        await asyncio.to_thread(files.remove_stale, spec.stale)
    except OSError as e:
        return _blocked(spec, "what an earlier instance left cannot be removed", f"{e.filename}: {e.strerror}")
    return None


def _blocked(spec: ComponentSpec, text: str, evidence: str) -> Cause:
    return Cause(Reason.RESIDUE, text, evidence, spec.name)
