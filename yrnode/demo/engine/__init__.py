"""The stand-in engine: a small program that looks like `vllm serve` to whoever supervises it.

It generates nonsense, but its process tree, ports, metrics, exit codes, failures and leftovers are vLLM's.
It imports nothing from the rest of yrnode. Faults on request, which vLLM has no button for:

- SIGUSR2 to EngineCore: a busy loop (state R, CPU burns, no progress, /health 200); again: it ends;
- SIGUSR2 to a Worker: its link to the external cache is dead: what it is to load never comes, its request waits for
  it and others go on; again: what is loaded from then on comes;
- the word `[standin:stuck]` in a prompt: that request never moves, others are answered;
- `--standin-prefill-rate`, `--standin-token-time`, `--standin-load-time`, `--standin-import-time`: be slow;
- `--standin-dense`: the engines of a headless group work each for itself, as those of a model without experts;
- `--standin-hang-on-term`: after TERM the engine goes and the leader waits for clients that get no answer, as vLLM
  does now and then when a request is in flight;
- `--standin-handshake-timeout`, `--standin-death-linger`: waits that take vLLM minutes or seconds.
"""
