"""One entry of `groups` in the cluster file: the ranks that start, stop and restart together."""

from typing import Annotated, Any, Literal

from pydantic import Field

from yrnode.config.fields import Args, Duration, Env, Model, ModelPath, Port, Seq, Text, Variable, seconds


class Mooncake(Model):
    """Mooncake: moves KV blocks from prefill to decode ranks."""

    kv_port: Port = 30000
    """First port of the transfer."""
    engine_id: Text | None = None
    """`engine_id` of the connector, another one in each group of the pair. Left out, vLLM makes up a new one at each
    start of a rank. With one that stays, the decode ranks go on using the addresses of prefill ranks that have
    restarted: write `restart_with` then."""
    use_ascend_direct: bool = True
    """Transfer between NPUs without host memory."""
    module_path: str = "vllm_ascend.distributed.mooncake_connector"
    """`kv_connector_module_path`: where this release of vllm-ascend has the connector."""
    extra: dict[str, Any] = Field(default={})
    """More keys of `kv_connector_extra_config`."""


class AscendStore(Model):
    """AscendStore: keeps KV blocks in the datasystem."""

    backend: str = "yuanrong"
    """The store behind it."""
    extra: dict[str, Any] = Field(default={})
    """More keys of `kv_connector_extra_config`."""


class KvConnector(Model):
    """vLLM's KV connectors: one, both, or none."""

    mooncake: Mooncake | None = None
    """Prefill to decode transfer."""
    ascend_store: AscendStore | None = None
    """The external KV cache."""


class GroupNode(Model):
    """What differs on one node of a group."""

    args: Args = Field(default={})
    """Flags of `vllm serve` here; `false` drops one of the group's."""
    env: Env = Field(default={})
    """Variables here."""


class Group(Model):
    """A data-parallel group of `vllm serve`."""

    ranks: dict[str, Annotated[int, Field(ge=0)]]
    """Data-parallel ranks of each node, in rank order."""
    model: ModelPath
    """The model's directory (absolute, or from `./` at this file), or its name."""
    tensor_parallel: int = Field(default=1, ge=1)
    """Devices that share one rank's tensors."""
    devices: dict[str, Seq[Annotated[int, Field(ge=0)]]] = Field(default={})
    """NPU ids of each node, in rank order; 0, 1, … when left out."""
    mode: Literal["external", "headless"] = "external"
    """external: one server per rank. headless: one server on the first node that balances, the others headless."""
    role: Literal["both", "producer", "consumer"] = "both"
    """Writes KV blocks, reads them, or both: a prefill group is a producer, a decode group a consumer."""
    peer: str | None = None
    """The other group of a prefill and decode pair."""
    port: Port = 6600
    """Port of a node's first rank; the next rank has the next port."""
    rpc_port: Port | None = None
    """The data-parallel RPC port; chosen and tested for each generation when left out."""
    args: Args = Field(default={})
    """Flags of `vllm serve`: true is a flag alone, false leaves it out, a mapping becomes JSON, a list many words."""
    env: Env = Field(default={})
    """Variables of these ranks."""
    unset: Seq[Variable] = ()
    """Variables that these ranks must not have."""
    kv_connector: KvConnector = KvConnector()
    """KV connectors."""
    start_timeout: Duration = seconds("30m")
    """How long the group may take to become ready."""
    restart_with: Seq[str] = ()
    """Groups that begin a new life together with this one, whichever of them has to."""
    nodes: dict[str, GroupNode] = Field(default={})
    """What differs on one node."""
