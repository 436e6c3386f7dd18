"""`python -m bench.agents URL DIR STOP_S COUNT FIRST LAST`: the agents FIRST to LAST-1 of COUNT, in one process.

It says `NODE MOVE SECONDS LIFE STAGE` for each move, and takes `restart NODE` on stdin.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from functools import partial
from pathlib import Path

from tests.support.agent import Agent
from yrnode.model.state import Move

TOLD = {Move.STOP, Move.CLEAN, Move.START, Move.READY}


async def main(url: str, where: Path, stop_s: float, count: int, first: int, last: int) -> None:
    names = tuple(f"n{i}" for i in range(count))
    agents = {name: Agent(name, names, url, where, stop_s) for name in names[first:last]}
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell(agent: Agent, move: Move, at: float) -> None:
        if move in TOLD:
            n, stage = agent.life
            print(agent.name, move.value, at, n, stage, flush=True)

    def hear() -> None:
        line = sys.stdin.readline()
        if line:
            agents[line.split()[1]].restart()
        else:
            ended.set()

    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(sys.stdin.fileno(), hear)
    for agent in agents.values():
        agent.seen = partial(tell, agent)
        await agent.start()
    gc.freeze()
    await ended.wait()
    loop.remove_reader(sys.stdin.fileno())
    await asyncio.gather(*(agent.close() for agent in agents.values()))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), *map(int, sys.argv[4:])))
