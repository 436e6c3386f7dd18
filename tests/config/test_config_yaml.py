import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.config.yaml import MAX_BYTES, Document, dotted, parse
from yrnode.model.errors import UsageError


def read(text: str) -> Document:
    return parse(text.encode(), "c.yaml")


def test_scalars_follow_yaml_1_2() -> None:
    words = "yes, no, on, off, true, False, ~, null, 'null', 2001-01-01, 1:30, 1_000, .inf, 0o17, 017, 0x10, 1e3"
    assert read(f"words: [{words}]\n").data["words"] == [
        *("yes", "no", "on", "off", True, False, None, None, "null", "2001-01-01", "1:30", "1_000", ".inf"),
        *(15, 17, 16, 1000.0),
    ]


def test_numbers_keep_how_they_were_written() -> None:
    values = read("v: [0x10, 0.90, 007, 1e3]\n").data["v"]
    assert [value.text for value in values] == ["0x10", "0.90", "007", "1e3"]


def test_every_key_and_item_has_its_line() -> None:
    document = read("a: 1\n# note\nb:\n  c:\n    - x\n    - y\n  d: {e: 1,\n      f: 2}\n")
    assert dict(document.lines) == {
        (): 1,
        ("a",): 1,
        ("b",): 3,
        ("b", "c"): 4,
        ("b", "c", 0): 5,
        ("b", "c", 1): 6,
        ("b", "d"): 7,
        ("b", "d", "e"): 7,
        ("b", "d", "f"): 8,
    }
    assert document.line(("b", "d", "missing", 3)) == 7
    assert document.fault(("b", "c", 1), "no") == "c.yaml:6: b.c[1]: no"


def test_merged_keys_give_way_to_written_ones_and_keep_their_line() -> None:
    document = read("a: &a {x: 1, y: {z: 2}}\nb:\n  y: 3\n  <<: *a\nc:\n  <<: [*a, {w: 4, x: 5}]\n")
    assert document.data["b"] == {"y": 3, "x": 1}
    assert document.data["c"] == {"x": 1, "y": {"z": 2}, "w": 4}
    assert document.line(("b", "y")) == 3
    assert document.line(("b", "x")) == 1
    assert document.line(("c", "y", "z")) == 1
    assert document.line(("c", "w")) == 6


def test_chinese_text_and_a_byte_order_mark_are_fine() -> None:
    document = parse("\ufeff# 集群\n模型: /数据/模型  # 路径\n".encode(), "集群.yaml")
    assert document.data == {"模型": "/数据/模型"}
    assert document.fault(("模型",), "x") == "集群.yaml:2: 模型: x"


BROKEN = [
    (b"", "c.yaml:1: the file is empty; write cluster, nodes and groups"),
    (b"# only a note\n---\n", "c.yaml:1: the file is empty; write cluster, nodes and groups"),
    (b"- a\n", "c.yaml:1: the file is no mapping; write keys such as cluster: demo"),
    (b"\nword\n", "c.yaml:2: the file is no mapping; write keys such as cluster: demo"),
    (b"a: 1\nb: \xff\n", "c.yaml:2: the text is not UTF-8; save the file as UTF-8"),
    ("a: 1\nb: 集群\n".encode("gbk"), "c.yaml:2: the text is not UTF-8; save the file as UTF-8"),
    (b"a: 1\nb: \x07\n", "c.yaml:2: a control character is in the text; remove it"),
    (b"a: 1\na: 2\n", "c.yaml:2: a is written twice, on lines 1 and 2; keep one"),
    (b"a:\n  b: 1\n  c: 2\n  b: 3\n", "c.yaml:4: a.b is written twice, on lines 2 and 4; keep one"),
    (b"a:\n\tb: 1\n", "c.yaml:2: broken YAML: a tab indents this line; use spaces"),
    (b"a: 1\n---\nb: 1\n", "c.yaml:2: broken YAML: a second document begins here; keep one document in the file"),
    (b"a: 'x\nb: 1\n", "c.yaml:3: broken YAML: a quote opened on line 1 is not closed; close it"),
    (
        b"a: [1, 2\nb: 3\n",
        "c.yaml:2: broken YAML: expected ',' or ']', but got ':'; close the bracket opened on line 1",
    ),
    (
        b"a: b: c\n",
        "c.yaml:1: broken YAML: a second ': ' on this line, or wrong indentation; "
        "put the value in quotes or fix the indentation",
    ),
    (b"a: *x\n", "c.yaml:1: broken YAML: found undefined alias 'x'; define it with & above this line"),
    (
        b"a: @x\n",
        "c.yaml:1: broken YAML: found character '@' that cannot start any token; "
        "check the indentation and the quotes of this line",
    ),
    (
        b"a: !!python/object/apply:os.system [id]\n",
        "c.yaml:1: the tag !!python/object/apply:os.system is not allowed; write the plain value",
    ),
    (b"a: 1\nb: !mine x\n", "c.yaml:2: the tag !mine is not allowed; write the plain value"),
    (b"a: 1\n? [b]\n: 2\n", "c.yaml:2: a key is no text; write a name, then a colon"),
    (b"a: 1\n: 2\n", "c.yaml:2: a key is no text; write a name, then a colon"),
    (b"a:\n  <<: 5\n", "c.yaml:2: << takes a mapping; write << : *name of one"),
    (b"a: &a [*a]\n", "c.yaml:1: values or aliases unfold to too much; write it flatter, with fewer aliases"),
    (b"- " * 3000, "c.yaml: the values are nested too deeply; write them flatter"),
    (
        b"a: " + b"x" * MAX_BYTES,
        "c.yaml: the file has more than 256 KB; is it a cluster file? Make it smaller",
    ),
]


@pytest.mark.parametrize(("content", "line"), BROKEN, ids=[line[:60] for _, line in BROKEN])
def test_broken_text_is_one_line_with_its_place_and_the_fix(content: bytes, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(content, "c.yaml")
    assert caught.value.lines == (line,)


def test_an_alias_bomb_is_refused_at_once() -> None:
    rows = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    rows += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(UsageError, match="unfold to too much"):
        read("\n".join(rows))
    maps = ["m0: &m0 {k: 1}"] + [f"m{n}: &m{n} {{<<: [{','.join([f'*m{n - 1}'] * 20)}]}}" for n in range(1, 9)]
    with pytest.raises(UsageError, match="unfold to too much"):
        read("\n".join(maps))


def test_all_faults_come_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        read("a: 1\na: 2\nb: !x 1\nc: {d: 1, d: 2}\n")
    assert [line.split(":")[1] for line in caught.value.lines] == ["2", "3", "4"]


def test_a_path_is_shown_as_people_write_it() -> None:
    assert dotted(("groups", "serve", "restart_with", 0)) == "groups.serve.restart_with[0]"


def outcome(content: bytes) -> tuple[str, ...]:
    """The faults of a text; none when it is a mapping."""
    try:
        assert isinstance(parse(content, "c.yaml").data, dict)
    except UsageError as error:
        return error.lines
    return ()


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_text_does_worse_than_a_usage_error(content: bytes) -> None:
    assert all(line.startswith("c.yaml:") and "\n" not in line for line in outcome(content))


@given(st.text(alphabet="ab:[]{},&*<!|>-'\"\n #?%@`", max_size=60))
def test_no_punctuation_does_worse_than_a_usage_error(text: str) -> None:
    assert all(line.startswith("c.yaml:") and "\n" not in line for line in outcome(text.encode()))
