"""The stand-in engine: a small program that looks like `vllm serve` to whoever supervises it.

It generates nonsense, but its process tree, ports, metrics, exit codes, failures and leftovers are vLLM's.
Knobs of its own start with `--standin-`. It imports nothing from the rest of yrnode.
"""
