#!/usr/bin/env python3
"""Make tiny random models for real vLLM runs on a CPU, without any download.

usage: make_tiny_model.py OUTDIR   makes OUTDIR/tiny-dense (Qwen3) and OUTDIR/tiny-moe (Qwen3MoE).
Run it with the Python of the lab: it needs transformers, tokenizers and torch.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

CHAT = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# head_dim 32 or 64 only: the CPU attention kernel refuses 16
COMMON = {
    "vocab_size": 512,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
    "bos_token_id": 0,
}
MOE = {
    "moe_intermediate_size": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
}


def save_tokenizer(directory: Path) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["hello world this is a tiny tokenizer for a tiny model"] * 50, trainer)
    end = "<|endoftext|>"
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token="<|pad|>")
    fast.chat_template = CHAT
    fast.model_max_length = 2048
    fast.save_pretrained(directory)


def main(out: Path) -> None:
    torch.manual_seed(0)
    for name, model in (
        ("tiny-dense", Qwen3ForCausalLM(Qwen3Config(intermediate_size=128, **COMMON))),
        ("tiny-moe", Qwen3MoeForCausalLM(Qwen3MoeConfig(intermediate_size=128, **MOE, **COMMON))),
    ):
        directory = out / name
        model.to(torch.bfloat16).save_pretrained(directory)
        save_tokenizer(directory)
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "bos_token_id": 0}))
        print(directory, sum(f.stat().st_size for f in directory.iterdir()), "bytes")


main(Path(sys.argv[1] if len(sys.argv) > 1 else "models"))
