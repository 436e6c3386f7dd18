"""yrnode: the node-local supervisor for LLM serving with vLLM and the openYuanrong datasystem."""

__version__ = "0.1.0"
