"""Where the cluster file is, and where the daemon's control socket is as far as a look at the file's text tells.

`yrnode probe` runs every few seconds: it must not load what validates a file.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

DEFAULT_FILE = "/etc/yrnode/cluster.yaml"
DEFAULT_RUN_DIR = Path("/run/yrnode")
_RUN_DIR = re.compile(r"^run_dir: *([\w./-]+) *(?:#.*)?$", re.MULTILINE)
_LARGEST = 1 << 20


def named(given: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> str:
    """The file that somebody has named, by `--config` or YRNODE_CONFIG; empty for none."""
    return os.fspath(given) if given else environ.get("YRNODE_CONFIG", "")


def find_file(given: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> str:
    """The file's place: `--config`, else `YRNODE_CONFIG`, else /etc/yrnode/cluster.yaml."""
    return named(given, os.environ if environ is None else environ) or DEFAULT_FILE


def run_dir_of(text: str, base: Path) -> Path | None:
    """The one run_dir that the file's text can mean; None where only a proper look can tell. Relative to `base`."""
    found = _RUN_DIR.findall(text)
    if len(found) != text.count("run_dir") or len(found) > 1:
        return None
    return base / found[0] if found else DEFAULT_RUN_DIR


def quick_run_dir(given: str | None, environ: Mapping[str, str]) -> Path | None:
    """The run_dir without a proper look at the file, also where there is no file and nobody has named one."""
    path = Path(find_file(given, environ))
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None if named(given, environ) or path.exists() else DEFAULT_RUN_DIR
        return run_dir_of(path.read_text("utf-8"), path.absolute().parent)
    except (OSError, ValueError):
        return None
