from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.config.group import Group
from yrnode.config.load import validate
from yrnode.config.render import args_list, node_args, node_env
from yrnode.config.yaml import parse

TEXT = """\
cluster: a
nodes:
  n0: {address: 10.0.0.1, env: {B: node, C: node, D: node, OFF: x}}
  n1: {address: 10.0.0.2}
env: {A: all, B: all, C: all, D: all, OFF: x, NO: false, YES: true, HEX: 0x10, R: 0.90}
groups:
  g:
    ranks: {n0: 1, n1: 1}
    model: m
    args: {seed: 1, enforce-eager: true}
    env: {C: group, D: group}
    unset: [OFF]
    nodes:
      n0: {args: {enforce_eager: false, max-num-seqs: 8}, env: {D: here}}
"""


def group(args: object) -> Group:
    return Group.model_validate({"model": "m", "ranks": {"n0": 1}, "args": args})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"enforce-eager": True, "async-scheduling": False}, ["--enforce-eager"]),
        ({"served_model_name": "glm-5"}, ["--served-model-name", "glm-5"]),
        ({"seed": 1024, "ratio": 0.5}, ["--seed", "1024", "--ratio", "0.5"]),
        ({"additional-config": {"a_b": True, "n": [1, "集"]}}, ["--additional-config", '{"a_b":true,"n":[1,"集"]}']),
        ({"sizes": [1, 2, 4]}, ["--sizes", "1", "2", "4"]),
        ({"lora-modules": [{"name": "x"}, "y=z"]}, ["--lora-modules", '{"name":"x"}', "y=z"]),
        ({"compilation_config.cudagraph_mode": "NONE"}, ["--compilation-config.cudagraph_mode", "NONE"]),
        ({"empty": "", "json": {}}, ["--empty", "", "--json", "{}"]),
    ],
)
def test_arguments_become_words(args: object, words: list[str]) -> None:
    assert args_list(group(args).args) == words


def test_a_node_changes_arguments_and_the_nearest_variable_wins() -> None:
    cluster = validate(parse(TEXT.encode(), "c.yaml"), Path("/"))
    here = cluster.groups["g"]
    assert args_list(node_args(here, "n0")) == ["--seed", "1", "--max-num-seqs", "8"]
    assert args_list(node_args(here, "n1")) == ["--seed", "1", "--enforce-eager"]
    scalars = {"NO": "false", "YES": "true", "HEX": "0x10", "R": "0.90"}
    assert node_env(cluster, here, "n0") == {"A": "all", "B": "node", "C": "group", "D": "here", **scalars}
    assert node_env(cluster, here, "n1") == {"A": "all", "B": "all", "C": "group", "D": "group", **scalars}


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.booleans() | st.integers() | st.text(max_size=5))
)
def test_every_argument_is_a_flag_with_at_most_one_word(args: dict[str, object]) -> None:
    words = args_list(group(args).args)
    flags = [name for name, value in args.items() if value is not False]
    values = [value for value in args.values() if not isinstance(value, bool)]
    assert len(words) == len(flags) + len(values)
    assert [word for word in words if word.startswith("--") and word[2:] in args] == [f"--{name}" for name in flags]
