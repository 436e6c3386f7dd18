"""The `router` part of the cluster file."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from yrnode.config.fields import Args, Argv, Env, FilePath, Model, Port

URL_PATH_PATTERN = r"^/[!-~]*$"


class Router(Model):
    """The one process that spreads requests over the ranks."""

    node: str
    """The node that runs it."""
    port: Port = 8000
    """Its port."""
    kind: Literal["ascend-proxy", "vllm-router", "command"] = "ascend-proxy"
    """ascend-proxy: vllm-ascend's sample proxy. vllm-router: vLLM's router. command: your own `argv`."""
    script: FilePath | None = None
    """For ascend-proxy: load_balance_proxy_server_example.py."""
    argv: Argv | None = None
    """For command: its words; a program's name, a path, or a list."""
    health: Annotated[str, StringConstraints(pattern=URL_PATH_PATTERN)] | None = None
    """Path of its health URL. /healthcheck for ascend-proxy, /health for the others when left out."""
    prefill: str | None = None
    """The group that prefills."""
    decode: str | None = None
    """The group that decodes."""
    group: str | None = None
    """The group behind it where prefill and decode are not split. The only group of the file when left out."""
    args: Args = Field(default={})
    """More flags of the proxy or router."""
    env: Env = Field(default={})
    """Variables of the router."""
