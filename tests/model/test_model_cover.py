"""Secrets in free text are covered, however they are written; what only sounds like one stays readable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.model.cover import Cover, short, values_of

SECRET = "Tr0ub4dor-xYz"


@pytest.mark.parametrize(
    "line",
    [
        f"HF_TOKEN={SECRET}",
        f"export VLLM_API_KEY='{SECRET}'",
        f"password: {SECRET}",
        f"etcd password = {SECRET}, user = root",
        f'{{"api_key": "{SECRET}", "port": 1}}',
        f'{{"env": {{"DB_PASSWORD": "a\\"{SECRET}"}}}}',
        f"{{'api_key': ['{SECRET}', 'b'], 'port': 1}}",
        f"non-default args: {{'model': 'm', 'api_key': ['{SECRET}']}}",
        f"vllm serve m --api-key {SECRET} --port 1",
        f"vllm serve m --api-key={SECRET}",
        f"['vllm', '--api-key', '{SECRET}', '--port', '1']",
        f'["vllm","--hf-token","{SECRET}"]',
        f'"argv": "[\\"--api-key\\", \\"{SECRET}\\"]"',
        f'said: "{{\\"api_key\\": \\"{SECRET}\\"}}"',
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}",
        f"curl -H 'Authorization: Bearer {SECRET}'",
        f"got header bearer {SECRET}",
        f"http://user:{SECRET}@proxy:3128/x",
        f"http://user:p@{SECRET}@proxy:3128",
        f"redis://:{SECRET}@h",
        f"GET /v1?token={SECRET}&n=1",
        f"accessToken: {SECRET}",
        f"apiKey={SECRET}",
        f"secret_key => {SECRET}",
        f"an unfinished line: token: '{SECRET}",
    ],
)
def test_by_its_name(line: str) -> None:
    assert SECRET not in Cover()(line)
    assert "***" in Cover()(line)


@pytest.mark.parametrize(
    "line",
    [
        "sk-abcdefghijklmnop0123",
        "hf_abcdefghijklmnopqrstuvwxyz",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefgh",
    ],
)
def test_by_its_looks(line: str) -> None:
    covered = Cover()(f"it is {line} here")
    assert covered == "it is *** here"


def test_a_private_key_over_many_lines() -> None:
    text = "a\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nxyz\n-----END EC PRIVATE KEY-----\nb"
    assert Cover()(text) == "a\n-----BEGIN EC PRIVATE KEY-----***-----END EC PRIVATE KEY-----\nb"
    assert "MHcCAQEE" not in Cover()("-----BEGIN PRIVATE KEY-----\nMHcCAQEE\n")


@pytest.mark.parametrize(
    "line",
    [
        "Avg prompt throughput: 10.1 tokens/s, max_num_batched_tokens=8192",
        "etcd: key=/yrnode/lab/groups/serve/record revision=7",
        "tokenizer_mode=auto, tokenizers: 3",
        "GET http://10.0.0.1:2379/health 200",
        "cluster token is initial",
        "the password file is not there",
        "etcd.auth.password_file: /etc/etcd/password is not there",
        "vllm --api-key-file /etc/key --port 1",
        "mail to root@localhost",
    ],
)
def test_what_only_sounds_like_one(line: str) -> None:
    assert Cover()(line) == line


def test_json_stays_json() -> None:
    data = {"api_key": 'a"b', "list": {"password": ["x", "y"]}, "token": "t", "n": [1, 2], "url": "http://u:p@h/"}
    covered = json.loads(Cover()(json.dumps(data)))
    assert covered == {
        "api_key": "***",
        "list": {"password": ["***"]},
        "token": "***",
        "n": [1, 2],
        "url": "http://***@h/",
    }


TEXT = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=8, max_size=40)


@given(TEXT.filter(lambda s: "*" not in s), st.text(max_size=20), st.text(max_size=20))
def test_what_is_known_is_covered_wherever_it_stands(known: str, before: str, after: str) -> None:
    cover = Cover([known])
    for text in (before + known + after, json.dumps([before, known, after]), repr([known])):
        covered = cover(text)
        assert known not in covered
        assert json.dumps(known)[1:-1] not in covered


def test_a_short_one_is_covered_where_it_stands_alone() -> None:
    assert Cover(["hunt"])("hunt, hunter, x=hunt") == "***, hunter, x=***"
    assert Cover(["abc", "true", "4096", ""])("abc is true: 4096") == "abc is true: 4096"


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("short enough", 12, "short enough"),
        ("it said Tr0ub4dor", 16, "it said …"),
        ("it said Tr0ub4dor then", 18, "it said …"),
        ("Tr0ub4dor", 8, "…"),
        ("", 8, ""),
    ],
)
def test_a_cut_leaves_no_part_of_a_word(text: str, most: int, expected: str) -> None:
    assert short(text, most) == expected


@given(st.lists(st.text("ab", min_size=1, max_size=9)).map(" ".join), st.integers(8, 60))
def test_what_a_cut_leaves_are_whole_words_within_the_bound(text: str, most: int) -> None:
    cut = short(text, most)
    assert len(cut) <= most
    assert cut == text or text.split(" ")[: cut.count(" ")] == cut.split(" ")[:-1]


def test_what_is_secret_in_a_file() -> None:
    data = {
        "env": {"HF_TOKEN": "one1", "A": "b", "http_proxy": "http://u:two2@h"},
        "args": {"api-key": ["three", "four"], "deep": {"access_key": "five5"}},
        "secret": {"x": "six66"},
        "bin": ["python", "--api-key", "seven", "--password=eight", "--port", "1"],
        "etcd": {"auth": {"password_file": "/etc/pw"}, "port": 5},
    }
    found = set(values_of(data))
    assert {"one1", "two2", "three", "four", "five5", "six66", "seven", "eight"} <= found
    assert not {"b", "1", "python"} & found


def test_text_is_what_any_store_can_hold() -> None:
    assert Cover()("caf\udce9 \ud800") == r"caf\udce9 \ud800"
    assert Cover()("升级") == "升级"


def test_what_is_known_is_covered_as_a_form_writes_it() -> None:
    assert Cover(["two words/9"])("said two+words%2F9, two%20words%2F9") == "said ***, ***"
