"""All components of one node, from the cluster file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from yrnode.components import checks, datasystem, environment, etcd, router, vllm
from yrnode.components.host import Host
from yrnode.config.cluster import Cluster
from yrnode.config.layout import etcd_nodes
from yrnode.config.node import nic_of
from yrnode.model.cause import Cause
from yrnode.model.spec import ComponentSpec
from yrnode.process.exit import Exit
from yrnode.process.rotate import rotations


def host_of(cluster: Cluster, node: str, caller: Mapping[str, str], scripts: Sequence[Path] | None = None) -> Host:
    """UsageError when a script fails. `caller`: yrnode's own environment; `scripts`: `env_from` when left out."""
    before = environment.base(caller, engine=True)
    engine_env = environment.sourced(cluster.env_from if scripts is None else scripts, before)
    own = cluster.nodes[node]
    return Host(cluster, node, caller, engine_env, own.nic or nic_of(own.address))


def specs(host: Host) -> list[ComponentSpec]:
    """In order of start. UsageError for a check that there is not, and for what the router cannot do."""
    cluster = host.cluster
    checks.refuse_unknown(cluster)
    found = [etcd.spec(host)] if host.node in etcd_nodes(cluster) else []
    found.append(datasystem.spec(host))
    found += vllm.specs(host)
    if cluster.router is not None and cluster.router.node == host.node:
        found.append(router.spec(host))
    return found


def output_files(spec: ComponentSpec) -> list[Path]:
    """Files with what a component has said, oldest first."""
    own = [datasystem.newest_log(spec.dir / "datasystem/logs")] if spec.kind == "worker" else []
    return [*rotations(spec.log), spec.log, *(p for p in own if p is not None)]


def own_logs(spec: ComponentSpec) -> list[Path]:
    """Folders with logs that a component writes and bounds itself."""
    return [spec.dir / "datasystem/logs"] if spec.kind == "worker" else []


def client_logs(spec: ComponentSpec) -> list[Path]:
    """Logs that the datasystem's SDK writes below log_dir, for a rank or for our own probe."""
    envs = [spec.env, *(c.params.get("env", {}) for c in spec.checks)]
    folders = {Path(e["DATASYSTEM_CLIENT_LOG_DIR"]) for e in envs if "DATASYSTEM_CLIENT_LOG_DIR" in e}
    probes = [Path(c.params["log"]) for c in spec.checks if "log" in c.params]
    return [*probes, *(p for f in sorted(folders) if f.parent == spec.log.parent for p in sorted(f.glob("*.log")))]


def read_death(spec: ComponentSpec, how: Exit, ready: bool, lines: list[str], pid: int | None = None) -> Cause:
    """Why an instance ended that nobody had asked to end. `lines`: the end of its output; `pid`: its main process."""
    match spec.kind:
        case "etcd":
            return etcd.read_death(how, ready, lines, spec.data_dir, spec.replicas)
        case "worker":
            return datasystem.read_death(how, ready, lines, spec.dir / "datasystem/logs", pid)
        case "rank":
            return vllm.read_death(how, ready, lines, spec.name)
        case _:
            return router.read_death(how, ready, lines)
