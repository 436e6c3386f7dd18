"""The cluster file's values: one frozen model, the same on every node."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from yrnode.config.datasystem import Datasystem
from yrnode.config.etcd import Etcd
from yrnode.config.fields import Address, Argv, Duration, Env, FilePath, Model, Name, Seq
from yrnode.config.files import DEFAULT_RUN_DIR
from yrnode.config.group import Group
from yrnode.config.router import Router

KINDS = ("etcd", "worker", "rank", "router", "node")
CHECK_PATTERN = rf"^({'|'.join(KINDS)})\.[a-z0-9_-]+$"
NIC_PATTERN = r"^[^\s/:]{1,15}$"


def _listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or "/" in value or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f'"{value}" is no address and port; write one such as 127.0.0.1:8470')
    return value


class Api(Model):
    """The read-only HTTP interface."""

    listen: Annotated[str, AfterValidator(_listen)] = "127.0.0.1:8470"
    """Address and port."""

    @property
    def host(self) -> str:
        """The address, without brackets."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port."""
        return int(self.listen.rpartition(":")[2])


class Node(Model):
    """One machine."""

    address: Address
    """Its IPv4 address, which the other nodes reach."""
    nic: Annotated[str, StringConstraints(pattern=NIC_PATTERN)] | None = None
    """Its network interface; found from the address when left out."""
    env: Env = Field(default={})
    """Variables of the ranks on this node."""
    api: Api | None = None
    """`api` of this node alone, where several nodes share one host."""
    state_dir: FilePath | None = None
    """`state_dir` of this node alone."""
    run_dir: FilePath | None = None
    """`run_dir` of this node alone."""
    log_dir: FilePath | None = None
    """`log_dir` of this node alone."""


class Bin(Model):
    """Programs: a name (looked up beside yrnode's own interpreter, then in PATH), a path, or a list of words."""

    vllm: Argv = ("vllm",)
    """`vllm`, without `serve`."""
    dscli: Argv = ("dscli",)
    """The datasystem's command."""
    etcd: Argv = ("etcd",)
    """The etcd server."""
    python: Argv = ("python3",)
    """The Python that runs the router's script."""
    vllm_router: Argv = ("vllm-router",)
    """vLLM's router."""


class Check(Model):
    """How one check runs; what is left out keeps the check's own value."""

    period: Duration | None = None
    """From one probe to the next."""
    timeout: Duration | None = None
    """How long one probe may take."""
    failures: Annotated[int, Field(ge=1)] | None = None
    """Failed probes in a row that make a failure."""
    successes: Annotated[int, Field(ge=1)] | None = None
    """Good probes in a row that end it."""
    stall_timeout: Duration | None = None
    """For rank.progress: how long an engine that burns CPU may make no progress."""
    mode: Literal["act", "observe"] = "act"
    """observe: count what it would have done, and do nothing."""


class Cluster(Model):
    """The whole file."""

    cluster: Name
    """The cluster's name; part of its keys in etcd."""
    nodes: dict[Name, Node] = Field(min_length=1)
    """The machines, by name."""
    bin: Bin = Bin()
    """Programs to run."""
    env_from: Seq[FilePath] = ()
    """Shell scripts that are sourced once; what they change is used for every rank."""
    env: Env = Field(default={})
    """Variables of every rank; `"/a:${LD_LIBRARY_PATH}"` uses the value before."""
    etcd: Etcd = Etcd()
    """The store."""
    datasystem: Datasystem = Datasystem()
    """The cache."""
    groups: dict[Name, Group] = Field(min_length=1)
    """The engines, by group."""
    router: Router | None = None
    """The router; none when left out."""
    checks: dict[Annotated[str, StringConstraints(pattern=CHECK_PATTERN)], Check] = Field(default={})
    """Checks by kind of component and name, such as rank.canary."""
    api: Api = Api()
    """HTTP."""
    state_dir: FilePath = Path("/var/lib/yrnode")
    """What must survive a reboot."""
    run_dir: FilePath = DEFAULT_RUN_DIR
    """What need not: records of processes, and the control socket."""
    log_dir: FilePath = Path("/var/log/yrnode")
    """The components' own output."""
