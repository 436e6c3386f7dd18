"""/metrics: vLLM's names and labels in the Prometheus text format."""

from __future__ import annotations

import os
import time
from collections import Counter

BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
REASONS = ("stop", "length", "abort", "error", "repetition")


def process_start() -> float:
    """Wall time in seconds at which this process started."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as f:
        ticks = int(f.read().rpartition(")")[2].split()[19])
    with open("/proc/stat", encoding="ascii") as f:
        boot = next(int(line.split()[1]) for line in f if line.startswith("btime"))
    return boot + ticks / os.sysconf("SC_CLK_TCK")


class EngineMetrics:
    """One engine's series. Gauges and cache counters are what the engine last published; tokens are counted here."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.created = time.time()
        self.stats: dict[str, float] = {}
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.iterations: list[int] = [0] * (len(BUCKETS) + 1)
        self.iteration_sum = 0

    def iteration(self, prompt: int, generated: int) -> None:
        """Count one step that brought tokens."""
        self.prompt_tokens += prompt
        self.generation_tokens += generated
        tokens = prompt + generated
        self.iteration_sum += tokens
        self.iterations[next((n for n, le in enumerate(BUCKETS) if tokens <= le), len(BUCKETS))] += 1


class Page:
    """The text of one scrape."""

    def __init__(self, model_name: str, engines: list[EngineMetrics]) -> None:
        self.model = model_name.replace("\\", "\\\\").replace('"', '\\"')
        self.engines = engines
        self.lines: list[str] = []

    def _head(self, name: str, kind: str, text: str) -> None:
        self.lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def _sample(self, name: str, engine: EngineMetrics, value: float, extra: str = "") -> None:
        labels = f'engine="{engine.rank}",{extra}model_name="{self.model}"'
        self.lines.append(f"{name}{{{labels}}} {float(value)}")

    def gauge(self, name: str, text: str, stat: str) -> None:
        self._head(name, "gauge", text)
        for e in self.engines:
            self._sample(name, e, e.stats.get(stat, 0))

    def counter(self, name: str, text: str, values: list[float]) -> None:
        self._head(f"{name}_total", "counter", text)
        for e, value in zip(self.engines, values, strict=True):
            self._sample(f"{name}_total", e, value)
        self._created(name, text)

    def _created(self, name: str, text: str) -> None:
        self._head(f"{name}_created", "gauge", text)
        for e in self.engines:
            self._sample(f"{name}_created", e, e.created)

    def _iterations(self) -> None:
        name = "vllm:iteration_tokens_total"
        self._head(name, "histogram", "Histogram of number of tokens per engine_step.")
        for e in self.engines:
            total = 0
            for le, count in zip([*(f"{b:.1f}" for b in BUCKETS), "+Inf"], e.iterations, strict=True):
                total += count
                self.lines.append(
                    f'{name}_bucket{{engine="{e.rank}",le="{le}",model_name="{self.model}"}} {float(total)}'
                )
            self._sample(f"{name}_count", e, total)
            self._sample(f"{name}_sum", e, e.iteration_sum)

    def _finished(self) -> None:
        name, text = "vllm:request_success", "Count of successfully processed requests."
        self._head(f"{name}_total", "counter", text)
        for e in self.engines:
            for reason in REASONS:
                self._sample(f"{name}_total", e, e.finished[reason], f'finished_reason="{reason}",')

    def render(self) -> str:
        self._head("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
        self.lines.append(f"process_start_time_seconds {process_start()}")
        self.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", "running")
        self.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", "waiting")
        self.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", "usage")
        for name, stat, text in (
            ("prefix_cache_queries", "local_queries", "Prefix cache queries, in tokens."),
            ("prefix_cache_hits", "local_hits", "Prefix cache hits, in tokens."),
            ("external_prefix_cache_queries", "external_queries", "External prefix cache queries, in tokens."),
            ("external_prefix_cache_hits", "external_hits", "External prefix cache hits, in tokens."),
        ):
            self.counter(f"vllm:{name}", text, [e.stats.get(stat, 0) for e in self.engines])
        self.counter("vllm:num_preemptions", "Cumulative number of preemptions.", [0 for _ in self.engines])
        self.counter(
            "vllm:prompt_tokens", "Number of prefill tokens processed.", [e.prompt_tokens for e in self.engines]
        )
        self.counter(
            "vllm:generation_tokens",
            "Number of generation tokens processed.",
            [e.generation_tokens for e in self.engines],
        )
        self._finished()
        self._iterations()
        return "\n".join(self.lines) + "\n"
