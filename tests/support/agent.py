"""The real coordination of one node (World, policy, Groups, Shared over a real etcd) without any component's process.

`python -m tests.support.agent URL DIR STOP_S NAMES OWN [probes]` are those of NAMES that OWN names (by commas) in one
process: it says `NODE MOVE SECONDS LIFE STAGE` for each move, and takes `restart NODE` on stdin. With `probes` each
asks its store what the daemon asks again and again. `command` is that line.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from yrnode.model.action import Action
from yrnode.model.board import Peer
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupRecord
from yrnode.model.spec import CheckSpec, ComponentSpec
from yrnode.model.state import Move, Plane, State
from yrnode.model.verdict import ok
from yrnode.node import world
from yrnode.node.groups import Groups
from yrnode.node.memory import Memory
from yrnode.node.shared import Shared
from yrnode.node.storewatch import StoreWatch
from yrnode.node.storewrites import StoreWrites
from yrnode.node.supervisor import FLOOR_S
from yrnode.policy.plan import decide
from yrnode.store import codec
from yrnode.store.gateway import EtcdGateway
from yrnode.store.interface import Put, absent
from yrnode.store.keys import ClusterKeys
from yrnode.store.transport import within
from yrnode.telemetry.events import EventLog

GROUP = "serve"
GATE = CheckSpec("gate", "x", 1.0, 1.0, gate=True, watch=False)


async def until(what: str, condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.002)


class Agent:
    """`at[move]`: when a move of its rank was last made, monotonic seconds. `stop_s`: what its rank takes to end."""

    def __init__(self, name: str, names: tuple[str, ...], url: str, where: Path, stop_s: float = 0.0) -> None:
        self.name = name
        self._stop_s = stop_s
        here = where / name
        rank = ComponentSpec(
            f"rank/{GROUP}/{name}", "rank", Plane.ENGINE, (), {}, here, here, group=GROUP, checks=(GATE,)
        )
        self.rank = rank.name
        self.world = world.make([rank], time.monotonic(), name, {GROUP: world.GroupPlace(names)})
        self.world.store_available = True
        self.memory = Memory(here)
        self.events = EventLog(here / "events.jsonl")
        self.groups = Groups(self.world, self.memory, self.events, frozenset(), lambda: 0, lambda *_: None)
        self.store = EtcdGateway((url,), timeout_s=2.0)
        self.keys = ClusterKeys("agents")
        self.wake = asyncio.Event()
        self.at: dict[Move, float] = {}
        self.seen: Callable[[Move, float], None] = lambda move, at: None
        self._count = 0
        self._probes: tuple[StoreWatch | StoreWrites, ...] = ()

    def probe(self) -> None:
        """Ask its store what the daemon asks again and again."""
        self._probes = (
            StoreWatch(self.store, self.keys.store, lambda *_: None),
            StoreWrites(self.store, "etcdctl", self.world, self.events, self.wake.set),
        )

    async def start(self) -> None:
        await self.store.txn([absent(self.keys.store)], [Put(self.keys.store, b"uuid")])
        self.groups.shared = Shared(
            self.store,
            self.world,
            self.keys,
            Peer(self.name),
            cluster_name="",
            worker_of={},
            wake=self.wake.set,
            done=self.groups.done,
            memory=self.memory,
        )
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            busy = False
            now = time.monotonic()
            assert self.groups.shared is not None
            self.groups.shared.refresh(now)
            for action in decide(self.world.snapshot(now, random.random())):
                busy |= self._act(action, now)
            # as the supervisor's loop: what comes meanwhile is one round
            await asyncio.sleep(FLOOR_S)
            if not busy:
                try:
                    await within(self.wake.wait(), 1.0)
                except (TimeoutError, asyncio.TimeoutError):
                    continue
                self.wake.clear()

    def _act(self, action: Action, now: float) -> bool:
        if not isinstance(action.move, Move):
            return self.groups.act(action, now)
        if action.move is Move.START and not self.groups.about_to_start(GROUP):
            return False
        self.world.apply(action, now)
        self.at[action.move] = time.monotonic()
        self.seen(action.move, self.at[action.move])
        match action.move:
            case Move.CLEAN:
                self.world.update(self.rank, cleaned=True)
            case Move.START:
                self._count += 1
                self.world.update(self.rank, instance=f"p{self._count}", pid=self._count)
                self.world.record_result(self.rank, f"p{self._count}", "gate", ok("fine"), now)
            case Move.STOP if self.world.components[self.rank].state is State.STOPPING:
                if self._stop_s:
                    asyncio.get_running_loop().call_later(self._stop_s, self._gone)
                else:
                    self._gone()
        return True

    def _gone(self) -> None:
        self.world.update(self.rank, gone=True)
        self.wake.set()

    @property
    def life(self) -> tuple[int, str]:
        record = self.world.groups[GROUP].record
        return record.n, record.stage.value

    @property
    def ready(self) -> bool:
        return self.world.components[self.rank].state is State.READY

    def restart(self) -> None:
        """What an operator asks of this node."""
        self.world.update_group(GROUP, restart=Cause(Reason.OPERATOR, "restart serve"))
        self.wake.set()

    async def read_record(self) -> GroupRecord:
        """As the store has it."""
        kv = await self.store.get(self.keys.record(GROUP))
        assert kv is not None
        return codec.read(codec.record_of, kv.value)

    async def write_record(self, record: GroupRecord) -> int:
        """As somebody else would; the revision."""
        return await self.store.put(self.keys.record(GROUP), codec.dump(codec.record_dict(record)))

    async def close(self, *, crash: bool = False) -> None:
        """End it; with `crash` its lease is left to run out."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self.groups.shared is not None:
            await self.groups.shared.close(revoke=not crash)
        for one in self._probes:
            await one.close()
        await self.store.close()


def command(
    url: str, where: Path, stop_s: float, names: Sequence[str], own: Sequence[str], *, probes: bool = False
) -> tuple[str, ...]:
    """What runs the agents `own` of `names` in a process of their own, in the project's directory."""
    words = (url, str(where), str(stop_s), ",".join(names), ",".join(own), *(["probes"] if probes else []))
    return (sys.executable, "-m", "tests.support.agent", *words)


class AgentProcess:
    """An agent in a process of its own. `at[move]`: as above; the clock is the same in all processes of a host."""

    def __init__(self, name: str, names: tuple[str, ...], url: str, where: Path) -> None:
        self.name = name
        self.at: dict[Move, float] = {}
        self.life = (0, "")
        self._argv = command(url, where, 0.0, names, (name,))

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._argv, stdin=pipe, stdout=pipe)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            _, move, at, n, stage = line.decode().split()
            self.at[Move(move)] = float(at)
            self.life = (int(n), stage)

    @property
    def ready(self) -> bool:
        return bool(self.at) and max(self.at, key=lambda m: self.at[m]) is Move.READY

    def restart(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"restart {self.name}\n".encode())

    def kill(self) -> None:
        """SIGKILL: its lease is left to run out."""
        self._process.kill()

    async def close(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            try:
                await within(self._process.wait(), 10.0)
            except (TimeoutError, asyncio.TimeoutError):
                self._process.kill()
                await self._process.wait()
        await self._reading


async def _main(url: str, where: Path, stop_s: float, names: tuple[str, ...], own: list[str], probes: bool) -> None:
    agents = {name: Agent(name, names, url, where, stop_s) for name in own}
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell(agent: Agent, move: Move, at: float) -> None:
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
        if probes:
            agent.probe()
    # as the daemon does, which has not the objects of many to look at either
    gc.collect()
    gc.freeze()
    await ended.wait()
    loop.remove_reader(sys.stdin.fileno())
    await asyncio.gather(*(agent.close() for agent in agents.values()))


if __name__ == "__main__":
    _url, _where, _stop_s, _names, _own, *_probes = sys.argv[1:]
    asyncio.run(_main(_url, Path(_where), float(_stop_s), tuple(_names.split(",")), _own.split(","), bool(_probes)))
