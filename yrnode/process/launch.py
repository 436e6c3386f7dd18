"""Start a component's program: recorded first, then in a session and a directory of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from yrnode.model.spec import NIC, ComponentSpec
from yrnode.process import table, tail
from yrnode.process.exit import Exit
from yrnode.process.instance import Instance, all_shm
from yrnode.process.record import Ident, Record, path_of


class LaunchError(Exception):
    """The program could not be started: one line that names it and why. `no_room`: the disk is full."""

    def __init__(self, text: str, cause: OSError | None = None) -> None:
        super().__init__(text)
        self.no_room = cause is not None and cause.errno in (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Owner:
    """Whose instances they are. `name` is "<cluster>/<node>"; `home` the state directory: together they are the mark
    by which a later yrnode knows its own. Records are in `run_dir`."""

    name: str
    home: Path
    run_dir: Path


def launch(
    spec: ComponentSpec,
    generation: int,
    owner: Owner,
    ended: Callable[[Exit], None],
    values: Mapping[str, str],
    life: int = 0,
) -> Instance:
    """Start the program. LaunchError when that cannot be done, and then nothing runs.

    `values` replaces whole arguments that are only known now (an rpc port).
    """
    record = _new_record(spec, generation, owner, life)
    marks = {
        "YRNODE_INSTANCE": record.mark,
        "YRNODE_HOME": record.home,
        "YRNODE_GENERATION": str(generation),
        "YRNODE_LIFE": str(life),
    }
    env = _environment(spec, marks)
    argv = [values.get(a, a) for a in spec.argv]
    path = path_of(owner.run_dir, spec.name)
    try:
        record.save(path)
        child = _spawn(spec, argv, env, tail.header(spec.name, record.instance, generation))
    except OSError as e:
        _forget(path)
        raise LaunchError(f"cannot start {argv[0]}: {e.strerror} ({e.filename})", e) from e
    except ValueError as e:
        # a zero byte in a word or a variable
        _forget(path)
        raise LaunchError(f"cannot start {argv[0]}: {e}") from e
    proc = table.read(child.pid)
    if proc is None:
        raise LaunchError(f"{argv[0]} vanished at its start")
    ident = Ident.of(proc)
    instance = Instance(spec, record, path, ended)
    try:
        instance.keep(replace(record, launched=ident, main=None if spec.launcher else ident))
    except OSError as e:
        _undo(child)
        raise LaunchError(f"cannot write the record of {spec.name}: {e.strerror} ({e.filename})", e) from e
    # from here on the watch reaps; Popen must not
    child.returncode = 0
    instance.watch_launched(proc)
    return instance


def _environment(spec: ComponentSpec, marks: Mapping[str, str]) -> dict[str, str]:
    return {**{name: value for name, value in spec.env.items() if value != NIC}, **marks}


def _new_record(spec: ComponentSpec, generation: int, owner: Owner, life: int) -> Record:
    instance = secrets.token_hex(4)
    return Record(
        component=spec.name,
        instance=instance,
        generation=generation,
        mark=f"{owner.name}/{spec.name}/{instance}",
        home=str(owner.home),
        boot=table.boot_id(),
        # CLOCK_BOOTTIME counts as start ticks do
        began=int(time.clock_gettime(time.CLOCK_BOOTTIME) * table.TICKS_PER_S),
        shm_before=all_shm(),
        life=life,
    )


def _spawn(spec: ComponentSpec, argv: list[str], env: dict[str, str], header: bytes) -> subprocess.Popen[bytes]:
    for directory in (spec.dir, spec.log.parent, *spec.dirs):
        directory.mkdir(parents=True, exist_ok=True)
    for path, text in spec.files.items():
        path.write_text(text)
    # engines write their arguments, keys among them
    with open(spec.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o640)) as log:
        log.write(header)
        log.flush()
        return subprocess.Popen(
            argv,
            cwd=spec.dir,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _forget(path: Path) -> None:
    """A record without a process does no harm: the next start writes over it."""
    with contextlib.suppress(OSError):
        path.unlink()


def _undo(child: subprocess.Popen[bytes]) -> None:
    """A child without a record could not be proven ours later."""
    child.send_signal(signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(5)
