"""A model directory that would fail after minutes of loading is told before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.preflight.build import CLUSTER, look, verdicts
from yrnode.preflight import weights
from yrnode.preflight.finding import Finding

GLM5 = {"model_type": "glm_moe_dsa", "max_position_embeddings": 202752}
PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def model(where: Path, config: dict[str, Any] | None = None) -> Path:
    where.mkdir(parents=True)
    (where / "config.json").write_text(json.dumps(config or GLM5))
    (where / "tokenizer.json").write_text("{}")
    index = {"weight_map": {f"layer.{i}": part for i, part in enumerate(PARTS)}}
    (where / "model.safetensors.index.json").write_text(json.dumps(index))
    for part in PARTS:
        (where / part).write_bytes(b"\x08" + bytes(63))
    return where


def said(where: Path, path: Path, args: str = "{}") -> list[Finding]:
    return weights.look(look(where, CLUSTER.replace("model: m,", f"model: {path}, args: {args},")))


def test_a_whole_model(tmp_path: Path) -> None:
    path = model(tmp_path / "glm")
    (found,) = said(tmp_path, path)
    assert (found.verdict, found.found) == ("good", f"{path}: glm_moe_dsa, 5 files, all there")
    # a name, and a single file, are not looked into
    assert verdicts(weights.look(look(tmp_path))) == ["not here"]
    assert verdicts(said(tmp_path, path / PARTS[0])) == ["not here"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda p: (p / "config.json").unlink(), "has no config.json that can be read"),
        (lambda p: (p / "config.json").write_text("{"), "has no config.json that can be read"),
        (lambda p: (p / PARTS[1]).unlink(), f"lacks {PARTS[1]} (missing)"),
        (lambda p: (p / PARTS[0]).write_bytes(b""), f"lacks {PARTS[0]} (empty)"),
        (
            lambda p: (p / PARTS[0]).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid"),
            "(a git-lfs pointer)",
        ),
        (lambda p: (p / "model.safetensors.index.json").write_text("[]"), "index.json cannot be read"),
        (lambda p: [f.unlink() for f in p.glob("model*")], "has no weights"),
        (lambda p: (p / "rot.safetensors").write_bytes(b"x"), "holds rot.safetensors"),
    ],
)
def test_what_is_missing_or_too_much(tmp_path: Path, spoil: Any, words: str) -> None:
    path = model(tmp_path / "glm")
    spoil(path)
    blockers = [f for f in said(tmp_path, path) if f.verdict == "blocker"]
    assert [words in f.found for f in blockers] == [True]
    assert blockers[0].cure


LEFT = "quant_model_weights.safetensors.index.json"


@pytest.mark.parametrize("text", ['{"weight_map": {"a": "quant-00001.safetensors"}}', "{"])
def test_a_leftover_index_beside_whole_weights_is_told(tmp_path: Path, text: str) -> None:
    path = model(tmp_path / "glm")
    (path / LEFT).write_text(text)
    (found,) = said(tmp_path, path)
    assert (found.verdict, LEFT in found.cure) == ("warning", True)
    # the other one is the leftover
    (path / PARTS[0]).rename(path / "quant-00001.safetensors")
    blocked = [f.refuses for f in said(tmp_path, path)]
    assert any(blocked) is (text == "{")
    # of two, neither has all
    (path / "quant-00001.safetensors").unlink()
    assert f"lacks {PARTS[0]} (missing)" in next(f.found for f in said(tmp_path, path) if "lacks" in f.found)


@pytest.mark.parametrize(
    ("args", "good"),
    [
        ("{}", False),
        ("{load-format: auto}", False),
        ("{load-format: pt}", False),
        ("{load-format: dummy}", True),
        ("{load-format: sharded_state}", True),
    ],
)
def test_who_reads_no_weights_needs_none(tmp_path: Path, args: str, good: bool) -> None:
    path = model(tmp_path / "glm")
    for part in path.glob("*.safetensors*"):
        part.unlink()
    found = said(tmp_path, path, args)
    assert [f.refuses for f in found] == [not good]
    (path / "rot.safetensors").write_bytes(b"x")
    assert any("rot.safetensors" in f.found for f in said(tmp_path, path, args)) is not good


def test_an_index_of_safetensors_is_nothing_to_who_reads_others(tmp_path: Path) -> None:
    path = model(tmp_path / "glm")
    (path / PARTS[0]).rename(path / "pytorch_model.bin")
    assert verdicts(said(tmp_path, path, "{load-format: pt}")) == ["good"]
    assert verdicts(said(tmp_path, path)) == ["blocker"]


@pytest.mark.parametrize("args", ["{hf-config-path: /other}", "{config-format: mistral}"])
def test_a_config_may_come_from_elsewhere(tmp_path: Path, args: str) -> None:
    path = model(tmp_path / "glm")
    # what lies here is not what is read
    assert verdicts(said(tmp_path, path, f"{args[:-1]}, max-model-len: 999999}}")) == ["good"]
    (path / "config.json").unlink()
    assert verdicts(said(tmp_path, path, args)) == ["good"]


def test_many_missing_files_are_one_line(tmp_path: Path) -> None:
    path = model(tmp_path / "glm")
    index = {"weight_map": {str(i): f"model-{i}.safetensors" for i in range(200)}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (found,) = said(tmp_path, path)
    assert found.found.endswith("and 197 more")


def test_a_tokenizer_may_come_from_elsewhere(tmp_path: Path) -> None:
    path = model(tmp_path / "glm")
    (path / "tokenizer.json").unlink()
    assert verdicts(said(tmp_path, path)) == ["warning"]
    assert verdicts(said(tmp_path, path, "{tokenizer: /other}")) == ["good"]


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("198K", "good"),
        ("200k", "good"),
        ("202752", "good"),
        ("202753", "warning"),
        ("200K", "warning"),
        ("auto", "good"),
    ],
)
def test_the_length_of_context(tmp_path: Path, value: str, verdict: str) -> None:
    path = model(tmp_path / "glm")
    (found,) = said(tmp_path, path, f"{{max-model-len: {value}}}")
    assert found.verdict == verdict
    assert verdict == "good" or found.cure == "write max-model-len: 202752 or less"


def test_the_length_may_be_the_text_parts() -> None:
    assert weights.longest({"text_config": {"max_position_embeddings": 4096}}) == 4096
    assert weights.longest({"text_config": None}) is None


def test_no_pipeline_parallel_for_glm5(tmp_path: Path) -> None:
    path = model(tmp_path / "glm")
    (found,) = said(tmp_path, path, "{pipeline-parallel-size: 2}")
    assert (found.verdict, found.found) == ("blocker", "GLM-5 with pipeline parallel")
    assert verdicts(said(tmp_path, path, "{pipeline-parallel-size: 1}")) == ["good"]
    other = model(tmp_path / "other", {"model_type": "qwen3"})
    assert verdicts(said(tmp_path, other, "{pipeline-parallel-size: 2}")) == ["good"]


def test_the_digest_tells_models_apart_without_reading_weights(tmp_path: Path) -> None:
    one, two = model(tmp_path / "one"), model(tmp_path / "two")
    same = weights.digest(one)
    assert weights.digest(two) == same
    # as many bytes, and what is no part of the model
    (two / PARTS[0]).write_bytes(bytes(64))
    (two / "download.log").write_text("fetched")
    assert weights.digest(two) == same
    (two / PARTS[0]).write_bytes(bytes(65))
    assert weights.digest(two) != same
    (one / "config.json").write_text(json.dumps({**GLM5, "rope_theta": 1}))
    assert weights.digest(one) != same
