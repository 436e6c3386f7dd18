"""A whole one-node stack in a temporary directory: the real daemon as a child, from the file users start from."""

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
NODE = "n0"
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


class Stack:
    """One daemon and its directory. `start`, then `stop`, then `left_over` and `remove`."""

    def __init__(self, model: Path | None = None, extra: Sequence[str] = ()) -> None:
        vllm, flags = (_find_vllm(), _flags(extra)) if model is not None else ("", {})
        self.node = NODE
        self.dir = Path(tempfile.mkdtemp(prefix="yrnode-demo-"))
        self.config = self.dir / "cluster.yaml"
        self.output = self.dir / "yrnode.log"
        self._state = self.dir / "state"
        self._child: subprocess.Popen[bytes] | None = None
        if model is None:
            shutil.copyfile(shipped(), self.config)
        else:
            _write_with_model(self.config, vllm, model, flags, os.environ)

    def start(self) -> float:
        """Start the daemon; the monotonic time of its start."""
        argv = [sys.executable, "-m", "yrnode.cli.main", "run", "--config", str(self.config), "--node", NODE]
        with open(self.output, "ab") as out:
            # a session of its own: Ctrl-C on the terminal reaches the demo alone, which then stops it in order
            self._child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        return time.monotonic()

    @property
    def exit_code(self) -> int | None:
        """The daemon's exit code, None while it runs."""
        return self._child.poll() if self._child else None

    def last_line(self) -> str:
        """The daemon's last words."""
        lines = self.output.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "yrnode said nothing"

    def stop(self) -> bool:
        """TERM, and wait until the daemon has stopped everything. Whether it ended in time."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        # a daemon that died leaves its children to the next one; here there is none
        asyncio.run(orphans.end("", self._state, ORPHAN_GRACE_S))
        return self.exit_code in (0, None)

    def left_over(self) -> list[str]:
        """What should not be there after a stop: processes of this stack, and its sockets."""
        found = [f"process {p}" for p in orphans.find("", self._state)]
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


def _write_with_model(
    path: Path, vllm: str, model: Path, flags: Mapping[str, Any], caller: Mapping[str, str]
) -> None:
    """The demo's file with one rank of a real vLLM.

    `flags`: more flags of `vllm serve`. The caller's variables for the engine are written into the file: what a rank
    gets is what the file says.
    """
    yaml = YAML()
    with open(shipped()) as f:
        data = yaml.load(f)
    data["bin"]["vllm"] = vllm
    data["env"] = {k: v for k, v in sorted(caller.items()) if k.startswith(_MODEL_PREFIXES) and not secret(k)}
    group = data["groups"]["serve"]
    group["ranks"] = {"n0": 1}
    group["model"] = str(model.resolve())
    group["args"] = {"served-model-name": "demo", **flags}
    # the connector to the datasystem is part of vllm-ascend
    del group["kv_connector"]
    with open(path, "w") as out:
        yaml.dump(data, cast("IO[Any]", out))


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
