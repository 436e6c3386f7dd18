"""`python -m bench.fleet DIR URL COUNT`: the daemon's own loop over so many children that do nothing.

It says each move on stdout: component, move, monotonic seconds. As in a drill, the deaths use up no budget.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench import sleepers
from yrnode.config.load import load
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Plane
from yrnode.node.supervisor import Supervisor

# ready soon, since the next kill waits for it
CHECK = CheckSpec("process", "process", 1.0, 1.0, gate=True, local=True, gate_period_s=0.05)
FILE = """
cluster: fleet
nodes: {{n0: {{address: 127.0.0.1}}}}
etcd: {{external: ["{url}"]}}
groups: {{serve: {{ranks: {{n0: 1}}, port: 1025, model: demo}}}}
state_dir: ./state
run_dir: ./run
log_dir: ./log
"""


def specs(where: Path, count: int) -> list[ComponentSpec]:
    env = {"PATH": os.defpath, "BIRTHS": str(where / "births")}
    return [
        ComponentSpec(
            name, "command", Plane.ROUTER, sleepers.argv(name), env, where / "state" / name, where / "log" / name,
            checks=(CHECK,),
        )
        for name in (f"c{i}" for i in range(count))
    ]  # fmt: skip


class Fleet(Supervisor):
    def _recall(self) -> None:
        super()._recall()
        print("up", flush=True)

    def _act(self, action: Any, now: float) -> bool:
        done = super()._act(action, now)
        if done:
            print(action.target, action.move.value, time.monotonic(), flush=True)
            if action.target in self._world.components:
                self._world.update(action.target, drilled=True)
        return done


async def main(where: Path, url: str, count: int) -> None:
    config = where / "cluster.yaml"
    config.write_text(FILE.format(url=url))
    fleet = Fleet(load(config), "n0", specs(where, count), "bench")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fleet.shut_down)
    # as the daemon does
    gc.collect()
    gc.freeze()
    await fleet.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
