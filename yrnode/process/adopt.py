"""After the daemon's own restart: which processes are ours, beyond doubt.

A recorded process is adopted when pid, start ticks and boot id agree, and it carries the mark; where its environment
is erased (process titles do that), session, working directory and log file must be the component's own. Everything
else is not ours and is never signalled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from yrnode.model.spec import ComponentSpec
from yrnode.process import proof, table
from yrnode.process.exit import Exit
from yrnode.process.instance import Instance
from yrnode.process.launch import Owner
from yrnode.process.record import Ident, Record, path_of

_GHOST = table.Proc(os.getpid(), "", "X", 0, 0, 0, -1)
"""A process that is gone: watching it reports its end at once."""


def adopt(spec: ComponentSpec, record: Record, owner: Owner, ended: Callable[[Exit], None]) -> Instance | None:
    """The instance of a record of this boot, watched again; None where nothing of it is alive, and nothing ever was.

    A main process that has died meanwhile is watched too: `ended` is then called at once.
    """
    if record.boot != table.boot_id() or record.home != str(owner.home):
        return None
    instance = Instance(spec, record, path_of(owner.run_dir, spec.name), ended)
    if record.launched is None:
        return _adopt_unfinished(instance)
    launched = _ours(record.launched, record, spec)
    main = _ours(record.main, record, spec) if record.main else None
    for ident, proc in ((record.launched, launched), (record.main, main)):
        if ident is not None and proc is None and _somebody(ident):
            # the record points at a stranger: neither he nor his session may ever be taken for ours
            instance.record = record = replace(record, launched=None, main=None)
    if spec.launcher:
        if launched is not None:
            instance.watch_launched(launched)
        if main is not None:
            instance.watch_main(main)
        elif launched is None and not instance.find_main():
            instance.watch_main(_GHOST)
        return instance
    instance.watch_launched(main or _GHOST)
    return instance


def _adopt_unfinished(instance: Instance) -> Instance | None:
    """The daemon died between the record and the start, or just after it: an orphan has the mark, if there is one."""
    for proc in instance.members():
        if proc.pid == proc.sid:
            ident = Ident.of(proc)
            instance.record = replace(instance.record, launched=ident, main=None if instance.spec.launcher else ident)
            instance.watch_launched(proc)
            return instance
    return None


def from_marks(spec: ComponentSpec, owner: Owner) -> Record | None:
    """A record from the processes themselves, where its file is lost: their marks tell instance and generation.

    None unless all marked processes of the component are of one instance.
    """
    prefix, home = f"{owner.name}/{spec.name}/", str(owner.home)
    found: dict[str, list[table.Proc]] = {}
    for proc in table.scan():
        if proc.state not in "ZX":
            mark, where = table.marks(proc.pid)
            if where == home and mark.startswith(prefix):
                found.setdefault(mark, []).append(proc)
    own = {mark: proof.sort(procs, (), spec.dir, spec.log).own for mark, procs in found.items()}
    found = {mark: procs for mark, procs in own.items() if procs}
    if len(found) != 1:
        return None
    ((mark, procs),) = found.items()
    leaders = [p for p in procs if p.pid == p.sid]
    launchers = [p for p in leaders if spec.launcher and _runs(p.pid, spec.argv)]
    mains = [p for p in leaders if p not in launchers]
    began = min(p.start_ticks for p in procs)
    return Record(
        component=spec.name,
        instance=mark.removeprefix(prefix),
        generation=table.number(procs[0].pid, "YRNODE_GENERATION"),
        mark=mark,
        home=home,
        boot=table.boot_id(),
        began=began,
        launched=Ident.of((launchers or mains or procs)[0]),
        main=Ident.of(mains[0]) if mains else None,
        life=table.number(procs[0].pid, "YRNODE_LIFE"),
    )


def _runs(pid: int, argv: tuple[str, ...]) -> bool:
    """Whether the process was started with these words (an interpreter may stand in front)."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            words = [os.fsdecode(w) for w in f.read().split(b"\0")]
    except OSError:
        return False
    return words[-len(argv) : -1] == list(argv[1:])


def _ours(ident: Ident, record: Record, spec: ComponentSpec) -> table.Proc | None:
    proc = ident.find()
    if proc is None or proc.state in "ZX":
        return None
    mark, home = table.marks(proc.pid)
    if (mark, home) == (record.mark, record.home):
        return proc
    return proc if not mark and _at_home(proc, spec) else None


def _at_home(proc: table.Proc, spec: ComponentSpec) -> bool:
    """The second proof, for a process that shows no environment."""
    try:
        return (
            proc.sid == proc.pid
            and os.path.samefile(f"/proc/{proc.pid}/cwd", spec.dir)
            and os.path.samefile(f"/proc/{proc.pid}/fd/1", spec.log)
        )
    except OSError:
        return False


def _somebody(ident: Ident) -> bool:
    proc = ident.find()
    return proc is not None and proc.state not in "ZX"
