"""The `datasystem` part of the cluster file."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from yrnode.config.fields import Duration, Flags, Model, Port, Seq, Size, Text, seconds, size

LIST_PATTERN = r"^(all|!?\+?[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)$"
NodeList = Annotated[Text, StringConstraints(pattern=LIST_PATTERN)]


class Numa(Model):
    """Options of numactl, which dscli passes on."""

    interleave: NodeList | None = None
    """Spread memory over these NUMA nodes, such as 0-7."""
    cpunodebind: NodeList | None = None
    """Run on the CPUs of these NUMA nodes."""
    physcpubind: NodeList | None = None
    """Run on these CPUs."""
    preferred: NodeList | None = None
    """Take memory from this NUMA node first."""
    membind: NodeList | None = None
    """Take memory from these NUMA nodes only."""
    localalloc: bool = False
    """Take memory from the NUMA node of the CPU."""


class Datasystem(Model):
    """The cache: one openYuanrong datasystem worker on every node."""

    port: Port = 18481
    """Port of each worker."""
    shared_memory: Size = size("1024MB")
    """Shared memory of each worker, in whole MB of 1024 * 1024 bytes."""
    node_timeout: Duration = seconds("30s")
    """A worker that is silent for so long counts as lost; whole seconds. Also its lease in etcd."""
    node_dead_timeout: Duration = seconds("60s")
    """A worker that is silent for so long leaves the ring, and ends itself once its peers have etcd; whole seconds,
    above `node_timeout`."""
    start_timeout: Duration = seconds("90s")
    """How long a worker may take to become ready; whole seconds."""
    huge_pages: bool = False
    """Take the shared memory from huge pages."""
    remote_h2d: Seq[Annotated[int, Field(ge=0)]] = ()
    """NPU ids for Remote H2D; needs `huge_pages`."""
    numa: Numa = Numa()
    """Where memory and threads are placed."""
    cluster_name: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$", max_length=63)
    """Prefix of the datasystem's keys, where several datasystems share one etcd."""
    on_worker_restart: Literal["keep", "group"] = "keep"
    """What a worker's restart does to this node's groups: keep them, or restart them too."""
    args: Flags = Field(default={})
    """Any other flag of the worker."""
