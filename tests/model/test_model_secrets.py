"""Secrets are covered, and what only sounds like one is not."""

from __future__ import annotations

import pytest

from yrnode.model.secrets import cover_argv, cover_env, cover_text, secret


@pytest.mark.parametrize(
    "name",
    ["--api-key", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "--hf-token", "DB_PASSWD", "key"],
)
def test_secret(name: str) -> None:
    assert secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "--max-num-batched-tokens",
        "--initial-cluster-token",
        "--peer-key-file",
        "--etcd_key",
        "--tokenizer",
        "--ssl-keyfile",
        "TOKENIZERS_PARALLELISM",
        "--kv-transfer-config",
        "MONKEY",
    ],
)
def test_no_secret(name: str) -> None:
    assert not secret(name)


def test_a_flag_may_take_several_values() -> None:
    words = ["vllm", "serve", "m", "--api-key", "a", "b", "--port", "1", "--api-key=c", "--hf-token", "d"]
    covered = ["vllm", "serve", "m", "--api-key", "***", "***", "--port", "1", "--api-key=***", "--hf-token", "***"]
    assert cover_argv(words) == covered


def test_addresses_and_json() -> None:
    assert cover_text("http://me:pw@proxy:3128/x") == "http://***@proxy:3128/x"
    assert (
        cover_text('{"backend": "b", "access_key": "s3\\"x", "port": 1}')
        == '{"backend": "b", "access_key": "***", "port": 1}'
    )
    assert cover_env({"http_proxy": "http://u:p@h", "VLLM_API_KEY": "x", "A": "b"}) == {
        "http_proxy": "http://***@h",
        "VLLM_API_KEY": "***",
        "A": "b",
    }
