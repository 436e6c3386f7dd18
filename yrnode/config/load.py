"""Finding and reading the cluster file."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from yrnode.config.cluster import Cluster
from yrnode.config.files import find_file
from yrnode.config.problems import problems
from yrnode.config.report import lines_of
from yrnode.config.yaml import MAX_BYTES, Document, parse
from yrnode.model.errors import UsageError


@dataclass(frozen=True)
class ClusterFile:
    """A cluster file that was read: its values, and where each is written, for those who find more faults in it."""

    path: Path
    cluster: Cluster
    document: Document


def read(given: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> ClusterFile:
    """Read and validate the cluster file. Raises UsageError with one line for each fault in it."""
    file = find_file(given, environ)
    path = Path(file)
    try:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            # a pipe would be waited for, for ever
            raise UsageError(f"{file}: no regular file; name the cluster file with --config or YRNODE_CONFIG")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{file}: {reason}; name the cluster file with --config or YRNODE_CONFIG") from None
    document = parse(content, file)
    return ClusterFile(path, validate(document, path.absolute().parent), document)


def load(given: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Cluster:
    """The cluster of the file; see `read`."""
    return read(given, environ).cluster


def parsed(file: str) -> Any:
    """The values of a file that may have faults, as far as it is YAML; else an empty mapping."""
    try:
        return parse(Path(file).read_bytes(), file).data
    except (OSError, UsageError):
        return {}


def validate(document: Document, base: Path) -> Cluster:
    """A document's values as a cluster; relative paths begin at `base`. Raises UsageError."""
    try:
        cluster = Cluster.model_validate(document.data, context={"base": base})
    except ValidationError as error:
        raise UsageError(*lines_of(error, document)) from None
    if empty := lines_of(None, document):
        raise UsageError(*empty)
    found = problems(cluster)
    if found:
        rows = sorted(found, key=lambda problem: document.line(problem.path))
        raise UsageError(*dict.fromkeys(document.fault(problem.path, problem.text) for problem in rows))
    return cluster
