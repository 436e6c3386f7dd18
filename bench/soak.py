"""`python -m bench.soak`: the real stack under a light load and random faults, held to its invariants the whole time.

Exit 0: all held; 1: one broke, with the history that led there in the report; 2: bad usage.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench import soak_judge as judge
from bench import soak_report
from bench.soak_actions import Action, actions
from bench.soak_stack import Gauges, Load, Node, SharedMemory, look, urls

READY_S = 300.0
CLEAN_S = 20.0
"""How long helpers, leftovers and old processes may outlive the recovery that ended them."""
STEADY_S = 1.0
WARM_S = 120.0
PAUSE_S = (6.0, 14.0)
KILLS_UNTIL, KILLS_FROM = 0.2, 0.9
"""The daemon itself is ended in the first and the last part of a run alone: between them one life is long enough to
show what grows."""
HISTORY = 80


class Soak:
    """One run. `report` can be taken at any time."""

    def __init__(self, minutes: float, seed: int) -> None:
        self.seed, self.wanted_s = seed, minutes * 60
        self.began = time.monotonic()
        self.node = Node()
        self.memory = SharedMemory(self.node)
        self.load: Load | None = None
        self.windows: list[judge.Window] = []
        self.quiet: list[list[Gauges]] = []
        self.rows: list[dict[str, Any]] = []
        self.broken: list[dict[str, Any]] = []
        self.stopping = False
        self._judged = self._seq = 0
        self._random = random.Random(seed)
        self._once = actions()
        self._random.shuffle(self._once)

    @property
    def part(self) -> float:
        return (time.monotonic() - self.began) / self.wanted_s

    def over(self) -> bool:
        return self.stopping or self.part >= 1.0

    def run(self) -> None:
        """Until the time is over, somebody ends it, or the stack does not come back."""
        self.node.begin()
        try:
            status = self.node.wait_ready(READY_S)
        except AssertionError as e:
            self._break("the start", [str(e)], 0)
            return
        self.load = Load(urls(status))
        self.load.start()
        before = self._settled()
        while not self.over():
            before = self._pause(before)
            if self.over():
                break
            after = self._act(self._next(), before)
            if after is None:
                break
            before = after

    def end(self) -> None:
        """Stop the load and the stack in order, and look at what is left."""
        if self.load is not None:
            self.load.stop()
            self._judge_requests("the end")
        code = self.node.end()
        found = [] if code in (0, None) else [f"the daemon ended with {code}"]
        if code is None and not self.broken:
            found.append("no daemon was there to be stopped")
        found += [f"still runs: {line}" for line in self.node.left()]
        found += [f"left in /dev/shm: {name}" for name in self.memory.left()]
        found += [f"left socket: {p.name}" for p in self.node.dir.rglob("*") if p.is_socket()]
        if found:
            self._break("the end", found, 0)

    def _next(self) -> Action:
        """Each kind once, then any, but no end of the daemon in the middle part."""
        calm = KILLS_UNTIL <= self.part < KILLS_FROM
        if not calm:
            for action in self._once:
                if action.ends_daemon:
                    self._once.remove(action)
                    return action
        fit = [a for a in self._once if not (calm and a.ends_daemon)]
        if fit:
            self._once.remove(fit[0])
            return fit[0]
        return self._random.choice([a for a in actions() if not (calm and a.ends_daemon)])

    def _pause(self, before: dict[str, Any]) -> dict[str, Any]:
        """Nobody does anything for a while: nothing may change, and what must not grow is looked at."""
        until = time.monotonic() + self._random.uniform(*PAUSE_S)
        looks: list[Gauges] = []
        while time.monotonic() < until and not self.over():
            self.memory.look()
            if found := look(self.node):
                looks.append(found)
            time.sleep(1.0)
        self.quiet.append(looks)
        now = self._settled()
        self._judge("a pause", judge.broken(before, now, judge.Contract()), self._since())
        self._judge_requests("a pause")
        return now

    def _act(self, action: Action, before: dict[str, Any]) -> dict[str, Any] | None:
        """The status afterwards; None where the stack did not come back, or the soak is to end."""
        since, helpers, began = self._since(), self.node.helpers(), time.monotonic()
        self._say(f"{action.name} …")
        # open at its far end: a request that fails meanwhile is in it
        self.windows.append(judge.Window(action.name, began, float("inf"), action.contract.may_fail))
        try:
            result = action.run(self.node)
        except Exception as e:
            # such as a daemon that does not answer: what is broken then is told like the rest
            result = {"broken": [f"{action.name} could not be carried out: {e!r}"]}
        after = self._until_done(before, action)
        took = time.monotonic() - began
        if self.stopping:
            # the word that ends the soak may have cut a drill short
            return None
        found = [*result.pop("broken"), *judge.broken(before, after, action.contract)]
        found += self._leftovers(helpers if action.contract.new_daemon else [])
        self.windows[-1] = judge.Window(action.name, began, time.monotonic(), action.contract.may_fail)
        self.rows.append(
            {"at_s": round(began - self.began, 1), "action": action.name, "took_s": round(took, 1)} | result
        )
        self._judge(action.name, found, since)
        self._judge_requests(action.name)
        self._say(f"{action.name}: {'BROKEN: ' + '; '.join(found) if found else f'held, {took:.1f} s'}")
        return after if after.get("ready") else None

    def _until_done(self, before: dict[str, Any], action: Action) -> dict[str, Any]:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and not self.stopping:
            after = self._settled()
            fresh = not action.contract.new_daemon or after.get("started_at") != before["started_at"]
            if fresh and judge.done(before, after, action.contract):
                return after
            time.sleep(0.2)
        return self.node.status()

    def _settled(self) -> dict[str, Any]:
        """The status, once it has been ready with the same processes for a moment; the last one where it is not."""
        deadline, since = time.monotonic() + 30.0, time.monotonic()
        last = self.node.status()
        while time.monotonic() < deadline and not self.stopping:
            time.sleep(0.2)
            now = self.node.status()
            if not now["ready"] or (last["ready"] and judge.changed(last, now)) or not last["ready"]:
                since = time.monotonic()
            last = now
            if time.monotonic() - since >= STEADY_S:
                break
        return last

    def _leftovers(self, helpers: list[Any]) -> list[str]:
        """Empty once nothing is left of what ended; else what is, after a while."""
        deadline = time.monotonic() + CLEAN_S
        while True:
            now = {p.pid: p for p in self.node.helpers()}
            marks = {one.mark for one in self.node.records()}
            found = [
                f"pid {pid} is of {m}, which is in no record"
                for pid, m in self.node.marked().items()
                if m not in marks
            ]
            found += [f"left in /dev/shm: {name}" for name in self.memory.left()]
            found += [
                f"a helper of the ended daemon still runs: {p}" for p in helpers if _lives(p) and p.pid not in now
            ]
            if not found or time.monotonic() >= deadline:
                return found
            time.sleep(0.3)

    def _judge_requests(self, when: str) -> None:
        done = (self.load.done if self.load is not None else [])[self._judged :]
        self._judged += len(done)
        bad = judge.outside(done, self.windows)
        words = [f"a request to {r.rank} failed outside of any window that allows it: {r.error}" for r in bad]
        self._judge(when, words, max(0, self._since() - HISTORY // 2))

    def _judge(self, when: str, found: list[str], since: int) -> None:
        if found:
            self._break(when, found, since)

    def _break(self, when: str, found: list[str], since: int) -> None:
        """`since`: the event from which on the history is told."""
        code, body = self.node.get(f"/events?since={since}")
        events = json.loads(body) if code == 200 else []
        lines = [
            f"{time.strftime('%H:%M:%S', time.gmtime(e['at']))} {e['target']} {e['what']} {e['reason']} {e['text']}"
            for e in events[-HISTORY:]
        ]
        at = round(time.monotonic() - self.began, 1)
        self.broken.append(
            {"at_s": at, "when": when, "what": found, "history": lines, "daemon": self.node.tail()[-1500:]}
        )

    def _since(self) -> int:
        """The newest event's number. All of them each time would be memory that the daemon needs for us alone."""
        code, body = self.node.get(f"/events?since={self._seq}")
        events = json.loads(body) if code == 200 else []
        self._seq = int(events[-1]["seq"]) if events else self._seq
        return self._seq

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", file=sys.stderr, flush=True)

    def report(self) -> dict[str, Any]:
        requests = self.load.done if self.load is not None else []
        return soak_report.of(self, requests, judge.trends(self.quiet, WARM_S), judge.events_in_quiet(self.quiet))


def _lives(p: Any) -> bool:
    from yrnode.process import table

    return table.alive(p)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long faults are injected (20)")
    parser.add_argument("--seed", type=int, default=None, help="of the order of faults and the pauses; printed")
    parser.add_argument("--markdown", type=Path, help="write the report there, beside printing it")
    parser.add_argument("--json", type=Path, help="write the whole report there")
    args = parser.parse_args()
    if args.minutes <= 0:
        parser.error("--minutes is above 0")
    seed = random.SystemRandom().randrange(1_000_000) if args.seed is None else args.seed
    soak = Soak(args.minutes, seed)

    def stop(*_: object) -> None:
        soak.stopping = True
        print("the soak ends in order …", file=sys.stderr, flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    print(f"soak of {args.minutes:g} min, seed {seed}, in {soak.node.dir}", file=sys.stderr, flush=True)
    try:
        soak.run()
    finally:
        try:
            soak.end()
        finally:
            soak.node.close()
    report = soak.report()
    text = soak_report.markdown(report)
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    return 0 if report["held"] else 1


if __name__ == "__main__":
    sys.exit(main())
