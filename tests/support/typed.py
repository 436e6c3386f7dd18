"""What the scripts of a deployment really give their programs: bash runs them, with stand-ins for the programs."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("vllm", "etcd", "etcdctl", "dscli", "python", "sleep")
STAND_IN = """#!{python}
import json, os, sys
with open(os.environ["TYPED"], "a") as out:
    out.write(json.dumps({{"argv": [os.path.basename(sys.argv[0]), *sys.argv[1:]], "env": dict(os.environ)}}) + "\\n")
"""
NOT_TYPED = ("PATH", "HOME", "TYPED", "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE")


@dataclass(frozen=True)
class Typed:
    """One command as its program saw it."""

    argv: tuple[str, ...]
    env: dict[str, str]
    """What the script has set."""
    gone: frozenset[str]
    """Which of the variables that were there before are not any more."""


class Bash:
    """A directory with stand-ins, in which scripts can be run."""

    def __init__(self, where: Path) -> None:
        self.where = where
        (where / "bin").mkdir()
        for name in PROGRAMS:
            program = where / "bin" / name
            program.write_text(STAND_IN.format(python=sys.executable))
            program.chmod(0o755)

    def run(
        self,
        text: str,
        args: Sequence[str] = (),
        filled: Mapping[str, str] | None = None,
        before: Mapping[str, str] | None = None,
    ) -> list[Typed]:
        """The commands of a script, in order. `filled`: placeholders → what an operator writes there."""
        for word, value in (filled or {}).items():
            text = text.replace(word, value)
        script, out = self.where / "script.sh", self.where / "typed.jsonl"
        script.write_text(text)
        out.write_text("")
        path = f"{self.where / 'bin'}:{os.defpath}"
        env = {"PATH": path, "HOME": str(self.where), "TYPED": str(out), **(before or {})}
        # what runs in the background is waited for
        subprocess.run(
            ["bash", "-c", '. "$0" "$@"; wait', str(script), *args],
            env=env,
            cwd=self.where,
            timeout=30,
            check=True,
            capture_output=True,
        )
        return [self._typed(json.loads(line), before or {}) for line in out.read_text().splitlines()]

    def _typed(self, said: dict, before: Mapping[str, str]) -> Typed:
        env = said["env"]
        own = {k: v for k, v in env.items() if k not in NOT_TYPED and before.get(k) != v}
        return Typed(tuple(said["argv"]), own, frozenset(before.keys() - env.keys()))


def launched(line: Sequence[str]) -> list[list[str]]:
    """The parameters that launch_online_dp.py gives run_dp_template.sh, for each rank of its line."""
    said = dict(zip(line[2::2], line[3::2], strict=True))
    tensor, local = int(said["--tp-size"]), int(said["--dp-size-local"])
    return [
        [
            ",".join(str(n) for n in range(at * tensor, (at + 1) * tensor)),
            str(int(said["--vllm-start-port"]) + at),
            said["--dp-size"],
            str(int(said["--dp-rank-start"]) + at),
            said["--dp-address"],
            said["--dp-rpc-port"],
            said["--tp-size"],
        ]
        for at in range(local)
    ]
