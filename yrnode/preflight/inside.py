"""What the ranks' Python has: a program of its own, run by that Python, which need not be yrnode's.

Prints two lines of JSON: `{"versions": {DISTRIBUTION: VERSION or null}, "backend": PATH, null, or false where
vllm_ascend is missing}`, and then, since that import may end the process, `{"datasystem": ERROR or ""}`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os

DISTRIBUTIONS = ("vllm", "vllm-ascend", "transformers", "openyuanrong-datasystem")
BACKEND = "yuanrong_backend.py"


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def backend() -> str | bool | None:
    # finding a package of the top level imports nothing of it
    spec = importlib.util.find_spec("vllm_ascend")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for folder, _, files in os.walk(os.path.join(place, "distributed")):
            if BACKEND in files:
                return os.path.join(folder, BACKEND)
    return None if spec else False


def datasystem() -> str:
    try:
        import yr.datasystem  # noqa: F401
    except Exception as e:
        return f"{type(e).__name__}: {e}"[:200]
    return ""


print(json.dumps({"versions": {name: version(name) for name in DISTRIBUTIONS}, "backend": backend()}), flush=True)
print(json.dumps({"datasystem": datasystem()}), flush=True)
