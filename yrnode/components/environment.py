"""The environment of a child: built from a short list, never inherited whole.

What the caller's shell happens to hold (ETCD_NAME, VLLM_PORT, a proxy) must not reach a component.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from yrnode.config.programs import program
from yrnode.model.cover import Cover
from yrnode.model.errors import UsageError

KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
KEPT_PREFIXES = ("LC_",)
ENGINE_KEPT = ("LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD")
ENGINE_PREFIXES = ("ASCEND_", "ATB_", "TOOLCHAIN_")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SOURCE_TIMEOUT_S = 60


def base(caller: Mapping[str, str], *, engine: bool = False) -> dict[str, str]:
    """What a child takes over from the caller. Engines also take the paths that their container image sets."""
    names = KEPT + ENGINE_KEPT if engine else KEPT
    prefixes = KEPT_PREFIXES + ENGINE_PREFIXES if engine else KEPT_PREFIXES
    return {k: v for k, v in caller.items() if k in names or k.startswith(prefixes)}


def expand(values: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """`before` with `values` over it; `${NAME}` in a value stands for what NAME was so far, or for nothing.

    In a list of paths, whose name ends in PATH, nothing takes its colon along: an empty path would mean the working
    directory.
    """
    out = dict(before)
    for name, value in values.items():
        filled = [(part, _VARIABLE.sub(lambda m: out.get(m[1], ""), part)) for part in value.split(":")]
        paths = name.endswith("PATH")
        out[name] = ":".join(full for part, full in filled if full or not part or not paths)
    return out


def sourced(scripts: Sequence[Path], before: Mapping[str, str]) -> dict[str, str]:
    """The variables as they are after bash has sourced the scripts in order. UsageError when one fails."""
    if not scripts:
        return dict(before)
    # no arguments of ours: a script that looks at "$@" must not find any
    lines = [f". {shlex.quote(str(script))} 1>&2 || exit 1" for script in scripts]
    argv = ["bash", "-c", "\n".join([*lines, "env -0"])]
    try:
        done = subprocess.run(
            argv,
            env=dict(before),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SOURCE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise UsageError(f"env_from: cannot source {', '.join(map(str, scripts))}: {e}") from None
    if done.returncode != 0 or not done.stdout:
        # without output a script has called exit: what it set is lost
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise UsageError(f"env_from: {', '.join(map(str, scripts))} failed: {Cover()(words[0])}; mend or remove it")
    pairs = (field.partition(b"=") for field in done.stdout.split(b"\0") if field)
    found = {os.fsdecode(k): os.fsdecode(v) for k, _, v in pairs}
    return {k: v for k, v in found.items() if k not in ("_", "SHLVL", "PWD", "OLDPWD")}


def find_program(argv: tuple[str, ...], caller: Mapping[str, str]) -> tuple[str, ...]:
    """`argv` with its program as an absolute path; unchanged where this host does not have it."""
    try:
        return program(argv, caller.get("PATH"))
    except UsageError:
        return argv


def with_program(env: dict[str, str], argv: Sequence[str]) -> dict[str, str]:
    """PATH with the program's own directory in front, as in its activated virtual environment."""
    directory = os.path.dirname(argv[0])
    if directory:
        env["PATH"] = ":".join(_unique([directory, *env.get("PATH", os.defpath).split(":")]))
    return env


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))
