"""A whole stack in a temporary directory: real daemons as children, from the file that users start from."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import IO, Any, cast

from ruamel.yaml import YAML

from yrnode.model.errors import UsageError
from yrnode.model.secrets import secret
from yrnode.residue import orphans

FILE = "local-demo.yaml"
MOST_NODES = 16
"""Each has a worker of its own, with 220 MB and its shared memory."""
STOP_S = 60.0
ORPHAN_GRACE_S = 10.0
_MODEL_PREFIXES = (
    "VLLM_", "HF_", "TRANSFORMERS_", "TORCH", "OMP_", "GLOO_", "TP_", "HCCL_", "ASCEND_", "DO_NOT_TRACK",
)  # fmt: skip


def shipped(name: str = FILE) -> Path:
    """A cluster file that comes with yrnode: inside the package when installed, else beside it in the source tree."""
    installed = resources.files("yrnode") / "cluster_files" / name
    if installed.is_file():
        return Path(str(installed))
    return Path(__file__).resolve().parents[2] / "config" / name


class Daemon:
    """One `yrnode run` of the stack, and what it says."""

    def __init__(self, config: Path, node: str, output: Path) -> None:
        self.config, self.node, self.output = config, node, output
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = [sys.executable, "-m", "yrnode.cli.main", "run", "--config", str(self.config), "--node", self.node]
        with open(self.output, "ab") as out:
            # a session of its own: Ctrl-C on the terminal reaches the demo alone, which then stops it in order
            self._child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def exit_code(self) -> int | None:
        """Its exit code, None while it runs or where it was never started."""
        return self._child.poll() if self._child else None

    def last_line(self) -> str:
        """Its last words."""
        lines = self.output.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "yrnode said nothing"

    def ask_to_stop(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> None:
        """Until it has ended, by force at the end of the time."""
        if self._child is None:
            return
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class Stack:
    """The daemons of `nodes` nodes and their directory. `start`, then `stop`, then `left_over` and `remove`."""

    def __init__(self, model: Path | None = None, extra: Sequence[str] = (), nodes: int = 1) -> None:
        vllm, flags = (_find_vllm(), _flags(extra)) if model is not None else ("", {})
        self.dir = Path(tempfile.mkdtemp(prefix="yrnode-demo-"))
        self.config = self.dir / "cluster.yaml"
        if model is not None:
            _write_with_model(self.config, vllm, model, flags, os.environ)
        elif nodes == 1:
            shutil.copyfile(shipped(), self.config)
        else:
            _write_with_nodes(self.config, nodes)
        names = [f"n{i}" for i in range(nodes)]
        self.daemons = [Daemon(self.config, name, self.dir / f"{name}.log") for name in names]
        self._states = [self.dir / "state"] if nodes == 1 else [self.dir / name / "state" for name in names]

    def start(self) -> float:
        """Start the daemons; the monotonic time of their start."""
        for daemon in self.daemons:
            daemon.start()
        return time.monotonic()

    def ended(self) -> Daemon | None:
        """A daemon that has ended by itself."""
        return next((d for d in self.daemons if d.exit_code is not None), None)

    def stop(self) -> bool:
        """TERM, and wait until the daemons have stopped everything. Whether they ended in time.

        The first node's comes last: it has the store, which tells the others apart from a node that is lost.
        """
        first, others = self.daemons[0], self.daemons[1:]
        for part in (others, [first]):
            for daemon in part:
                daemon.ask_to_stop()
            for daemon in part:
                daemon.wait(STOP_S)
        # a daemon that died leaves its children to the next one; here there is none
        for state in self._states:
            asyncio.run(orphans.end("", state, ORPHAN_GRACE_S))
        return all(d.exit_code in (0, None) for d in self.daemons)

    def left_over(self) -> list[str]:
        """What should not be there after a stop: processes of this stack, and its sockets."""
        found = [f"process {p}" for state in self._states for p in orphans.find("", state)]
        found += [f"socket {p}" for p in self.dir.rglob("*") if p.is_socket()]
        return found

    def remove(self) -> list[str]:
        """Remove the directory; what could not be removed."""
        shutil.rmtree(self.dir, ignore_errors=True)
        return [f"directory {self.dir}"] if self.dir.exists() else []


def _find_vllm() -> str:
    """A real vLLM from PATH. UsageError where there is none."""
    found = shutil.which("vllm")
    if found is None:
        raise UsageError("vllm is not in PATH; activate its environment first, or leave --model out")
    return found


def _write_with_nodes(path: Path, nodes: int) -> None:
    """The demo's file for several nodes on this host, each on a loopback address and with one rank of the group."""
    data = _read()
    api_port = data["api"]["listen"].rpartition(":")[2]
    for key in ("api", "state_dir", "run_dir", "log_dir"):
        del data[key]
    names = {f"n{i}": f"127.0.0.{i + 1}" for i in range(nodes)}
    data["nodes"] = {
        name: {
            "address": address,
            "api": {"listen": f"{address}:{api_port}"},
            **{f"{what}_dir": f"./{name}/{what}" for what in ("state", "run", "log")},
        }
        for name, address in names.items()
    }
    data["datasystem"]["shared_memory"] = "256MB"
    data["groups"]["serve"]["ranks"] = dict.fromkeys(names, 1)
    _write(path, data)


def _read() -> Any:
    with open(shipped()) as f:
        return YAML().load(f)


def _write(path: Path, data: Any) -> None:
    with open(path, "w") as out:
        YAML().dump(data, cast("IO[Any]", out))


def _write_with_model(
    path: Path, vllm: str, model: Path, flags: Mapping[str, Any], caller: Mapping[str, str]
) -> None:
    """The demo's file with one rank of a real vLLM.

    `flags`: more flags of `vllm serve`. The caller's variables for the engine are written into the file: what a rank
    gets is what the file says.
    """
    data = _read()
    data["bin"]["vllm"] = vllm
    data["env"] = {k: v for k, v in sorted(caller.items()) if k.startswith(_MODEL_PREFIXES) and not secret(k)}
    group = data["groups"]["serve"]
    group["ranks"] = {"n0": 1}
    group["model"] = str(model.resolve())
    group["args"] = {"served-model-name": "demo", **flags}
    # the connector to the datasystem is part of vllm-ascend
    del group["kv_connector"]
    _write(path, data)


def _flags(words: Sequence[str]) -> dict[str, Any]:
    """`--a 1 --b` as {"a": "1", "b": True}. UsageError for a word that belongs to no flag."""
    flags: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flags[name] = value if equals else True
        elif name and flags[name] is True:
            flags[name] = word
        else:
            raise UsageError(
                f"{word!r} belongs to no flag; after -- write flags of vllm serve, such as --max-model-len 512"
            )
    return flags
