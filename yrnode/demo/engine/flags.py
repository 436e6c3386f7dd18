"""Command line of `vllm serve`, as far as the deployment guides use it, plus the `--standin-` knobs."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

# Accepted and ignored: they change what a model computes, not what a supervisor sees.
IGNORED_WITH_VALUE = (
    "additional-config", "all2all-backend", "allowed-origins", "api-server-count", "attention-backend",
    "chat-template", "compilation-config", "cpu-offload-gb", "data-parallel-backend",
    "disable-access-log-for-endpoints", "distributed-executor-backend", "distributed-timeout-seconds", "dtype",
    "generation-config", "gpu-memory-utilization", "hf-overrides", "kv-cache-dtype", "kv-events-config",
    "limit-mm-per-prompt", "load-format", "long-prefill-token-threshold", "max-log-len", "max-lora-rank",
    "max-num-partial-prefills", "nnodes", "node-rank", "master-addr", "master-port", "mm-processor-kwargs",
    "override-generation-config", "pipeline-parallel-size", "prefill-context-parallel-size",
    "decode-context-parallel-size", "profiler-config", "quantization", "revision",
    "scheduling-policy", "seed", "speculative-config", "swap-space", "tokenizer", "tokenizer-mode",
    "tool-call-parser", "uvicorn-log-level",
)  # fmt: skip
IGNORED_SWITCHES = (
    "async-scheduling", "calculate-kv-scales", "data-parallel-external-lb", "disable-cascade-attn",
    "disable-custom-all-reduce", "disable-frontend-multiprocessing", "disable-hybrid-kv-cache-manager",
    "disable-log-requests", "disable-log-stats", "enable-auto-tool-choice", "enable-chunked-prefill",
    "enable-dbo", "enable-elastic-ep", "enable-eplb", "enable-expert-parallel", "enable-fault-tolerance",
    "enable-force-include-usage", "enable-log-requests", "enable-lora", "enable-mfu-metrics",
    "enable-prompt-tokens-details", "enable-request-id-headers", "enable-sleep-mode",
    "enforce-eager", "kv-cache-metrics", "skip-tokenizer-init", "trust-remote-code",
)  # fmt: skip
SUFFIX = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Options:
    """What the stand-in heeds. Times in seconds."""

    model: str
    host: str
    port: int
    served: tuple[str, ...]
    api_keys: tuple[str, ...]
    root_path: str
    tls: tuple[str, str | None] | None
    pooling: bool
    tp: int
    dp: int
    dp_rank: int | None
    dp_local: int
    dp_start: int
    dp_address: str
    dp_rpc_port: int
    headless: bool
    hybrid: bool
    max_model_len: int
    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_batched: int
    prefix_caching: bool
    track_load: bool
    access_log: bool
    shutdown_timeout: float
    collective_timeout: float | None
    kv_transfer: dict[str, Any] | None
    expert_parallel: bool
    reasoning: bool
    import_time: float
    load_time: float
    token_time: float
    prefill_rate: float
    handshake_timeout: float
    death_linger: float
    block_bytes: int
    keep_read: bool
    hang_on_term: bool
    dense: bool

    @property
    def local_ranks(self) -> list[int]:
        """Global data-parallel ranks whose EngineCore this leader runs."""
        if self.dp_rank is not None:
            return [self.dp_rank]
        return list(range(self.dp_start, self.dp_start + self.dp_local))

    @property
    def remote_fronts(self) -> int:
        """How many engines of headless processes this leader serves besides its own."""
        if self.dp_rank is not None or self.hybrid or self.headless:
            return 0
        return self.dp - self.dp_local

    def engine_title(self, rank: int) -> str:
        return f"EngineCore_DP{rank}" if self.dp > 1 else "EngineCore"

    def worker_title(self, rank: int, tp_rank: int) -> str:
        title = f"Worker_DP{rank}" if self.dp > 1 else "Worker"
        if self.tp > 1:
            title += f"_TP{tp_rank}"
        if self.expert_parallel:
            title += f"_EP{rank * self.tp + tp_rank}"
        return title


class Parser(argparse.ArgumentParser):
    """Errors as vLLM's: one line on stderr that starts with the program, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"usage: {self.prog} [-h] [-v] {{serve}} ...\n{self.prog}: error: {message}\n")


@dataclass
class _Names:
    """vLLM takes `--max_model_len` for `--max-model-len`."""

    words: list[str] = field(default_factory=list)

    def add(self, word: str) -> None:
        if word.startswith("--"):
            name, eq, value = word.partition("=")
            word = name.replace("_", "-") + eq + value
        self.words.append(word)


def _size(text: str) -> int:
    """Whole number, with vLLM's suffixes: 32k is 32000, 32K is 32768."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"invalid integer value: {text}")
    return int(float(match[1]) * SUFFIX.get(match[2], 1))


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"Value {text} cannot be converted to <function loads>.")
    return value


def _serve(parser: argparse.ArgumentParser) -> None:
    switch = argparse.BooleanOptionalAction
    add = parser.add_argument
    add("model_tag", nargs="?")
    add("--model")
    add("--host", default="0.0.0.0")  # noqa: S104 - vLLM's default
    add("--port", type=int, default=8000)
    add("--served-model-name", nargs="+")
    add("--api-key", nargs="+")
    add("--root-path", default="")
    add("--ssl-certfile")
    add("--ssl-keyfile")
    add("--runner", choices=("auto", "generate", "pooling", "draft"), default="auto")
    add("--tensor-parallel-size", "-tp", type=int, default=1)
    add("--data-parallel-size", "-dp", type=int, default=1)
    add("--data-parallel-rank", "-dpn", type=int)
    add("--data-parallel-size-local", "-dpl", type=int)
    add("--data-parallel-start-rank", "-dpr", type=int)
    add("--data-parallel-address", "-dpa", default="127.0.0.1")
    add("--data-parallel-rpc-port", "-dpp", type=int, default=29550)
    add("--data-parallel-hybrid-lb", "-dph", action=switch, default=False)
    add("--headless", action="store_true")
    add("--max-model-len", type=_size, default=32768)
    add("--block-size", type=int, default=16)
    add("--num-gpu-blocks-override", type=int)
    add("--max-num-seqs", type=int, default=128)
    add("--max-num-batched-tokens", type=_size, default=2048)
    add("--enable-prefix-caching", action=switch, default=True)
    add("--enable-server-load-tracking", action=switch, default=False)
    add("--disable-uvicorn-access-log", action=switch, default=False)
    add("--shutdown-timeout", type=float, default=0)
    add("--cpu-distributed-timeout-seconds", type=float)
    add("--kv-transfer-config", type=_mapping)
    add("--reasoning-parser")
    for name in IGNORED_WITH_VALUE:
        add(f"--{name}")
    for name in IGNORED_SWITCHES:
        add(f"--{name}", action=switch)
    knobs = parser.add_argument_group("the stand-in's own knobs; times in seconds")
    knob = knobs.add_argument
    knob("--standin-import-time", type=float, default=0.0, help="how long a TERM still ends it at once")
    knob("--standin-load-time", type=float, default=0.2, help="loading, when a TERM is lost")
    knob("--standin-token-time", type=float, default=0.002, help="one step")
    knob("--standin-prefill-rate", type=float, default=50000.0, help="prompt tokens a second")
    knob("--standin-handshake-timeout", type=float, default=300.0, help="a rank's wait for rank 0")
    knob("--standin-death-linger", type=float, default=0.5, help="503 before the exit after the engine died")
    knob("--standin-dense", action="store_true", help="a model without experts: its engines need not step together")
    knob("--standin-hang-on-term", action="store_true", help="after TERM wait for clients that get no answer")
    knob("--standin-block-bytes", type=int, default=1024, help="size of a block in the external cache")
    knob("--standin-keep-read", action="store_true", help="blocks read from the external cache are used in place")


def parse(argv: list[str]) -> Options:
    """Options from the command line; SystemExit(2) with vLLM's message when it is wrong."""
    names = _Names()
    for word in argv:
        names.add(word)
    top = Parser(prog="vllm", allow_abbrev=False)
    top.add_argument("-v", "--version", action="version", version="0.32.0")
    serve = top.add_subparsers(dest="command", required=True).add_parser("serve", allow_abbrev=False)
    _serve(serve)
    a = top.parse_args(names.words)
    if a.data_parallel_rank is not None and not 0 <= a.data_parallel_rank < a.data_parallel_size:
        top.error(f"data_parallel_rank must be in range [0, {a.data_parallel_size})")
    model = a.model_tag or a.model or "Qwen/Qwen3-0.6B"
    local = a.data_parallel_size_local
    if local is None:
        local = 1 if a.data_parallel_rank is not None else a.data_parallel_size
    blocks = a.num_gpu_blocks_override or max(2048, -(-a.max_model_len // a.block_size) + 1)
    return Options(
        model=model,
        host=a.host,
        port=a.port,
        served=tuple(a.served_model_name or [model]),
        api_keys=tuple(a.api_key or []),
        root_path=a.root_path.rstrip("/"),
        tls=(a.ssl_certfile, a.ssl_keyfile) if a.ssl_certfile else None,
        pooling=a.runner == "pooling",
        tp=a.tensor_parallel_size,
        dp=a.data_parallel_size,
        dp_rank=a.data_parallel_rank,
        dp_local=local,
        dp_start=a.data_parallel_start_rank or 0,
        dp_address=a.data_parallel_address,
        dp_rpc_port=a.data_parallel_rpc_port,
        headless=a.headless,
        hybrid=a.data_parallel_hybrid_lb or (a.data_parallel_start_rank is not None and not a.headless),
        max_model_len=a.max_model_len,
        block_size=a.block_size,
        num_blocks=blocks,
        max_num_seqs=a.max_num_seqs,
        max_batched=a.max_num_batched_tokens,
        prefix_caching=a.enable_prefix_caching,
        track_load=a.enable_server_load_tracking,
        access_log=not a.disable_uvicorn_access_log,
        shutdown_timeout=a.shutdown_timeout,
        collective_timeout=a.cpu_distributed_timeout_seconds,
        kv_transfer=a.kv_transfer_config,
        expert_parallel=bool(a.enable_expert_parallel),
        reasoning=a.reasoning_parser is not None,
        import_time=a.standin_import_time,
        load_time=a.standin_load_time,
        token_time=a.standin_token_time,
        prefill_rate=a.standin_prefill_rate,
        handshake_timeout=a.standin_handshake_timeout,
        death_linger=a.standin_death_linger,
        block_bytes=a.standin_block_bytes,
        keep_read=a.standin_keep_read,
        hang_on_term=a.standin_hang_on_term,
        dense=a.standin_dense,
    )
