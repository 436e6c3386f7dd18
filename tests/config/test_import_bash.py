"""A script's words are those that bash makes of it, and what is not followed is listed."""

import contextlib
import os
import subprocess
import time

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from yrnode.config.scripts import syntax
from yrnode.config.scripts.bash import MAX_BYTES, Script, read
from yrnode.config.scripts.notes import Notes
from yrnode.config.scripts.reader import content
from yrnode.config.scripts.values import fill, shown
from yrnode.model.errors import UsageError


def script(text: str, positions: dict[str, str] | None = None) -> tuple[Script, Notes]:
    notes = Notes()
    return read(text, "x.sh", notes, positions), notes


def words(text: str, positions: dict[str, str] | None = None) -> list[str]:
    """The words of the only command of a script."""
    (command,) = script(text, positions)[0].commands
    return [shown(word) for word in command.words]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("run a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("X='a b'\nrun $X \"$X\" ${X}c", ["a", "b", "a b", "a", "bc"]),
        ('X=1; Y=${X}2\nrun $Y$X "${Y}:$X"', ["121", "12:1"]),
        ("run ${X:-1} ${X-2} ${X:=3}", ["1", "2", "3"]),
        ("X=\nrun a${X:-1} b${X-2} c$X ${X:+no}", ["a1", "b", "c"]),
        ("X=5\nrun ${X:-1} ${X:+yes}", ["5", "yes"]),
        ('X=5\nrun ${Y:-"$X 6"} "${Y:-$X}"', ["5 6", "5"]),
        ('run "{\\"a\\": \\"$4\\"}" \'{"a": "$4"}\'', ['{"a": "$4"}', '{"a": "$4"}']),
        ('run "a\\\nb" a\\\nb "\\$X \\x \\\\"', ["ab", "ab", "$X \\x \\"]),
        ("run --a \\\n  --b=1 \\\n  # the end\n", ["--a", "--b=1"]),
        ("run a # no\n#run b", ["a"]),
        ('A=(a \'b c\' "d")\nA+=(e)\nrun ${A[@]} "${A[@]}" $A', ["a", "b", "c", "d", "e", "a", "b c", "d", "e", "a"]),
        ('A=("x y" z)\nB="${A[@]}"\nrun $B', ["x", "y", "z"]),
        ("A=()\nrun a ${A[@]} b", ["a", "b"]),
        ("X=a\nX+=b\nrun $X", ["ab"]),
        ("export X=1 Y=2\nunset X\nrun a$X$Y", ["a2"]),
        ("run $'a\\tb'", ["a\tb"]),
        ("run a > /dev/null 2>&1", ["a"]),
        ("true && run a", ["a"]),
        ("run --x '[1,2]' [3,4]", ["--x", "[1,2]", "[3,4]"]),
        ('declare -x X=1\nreadonly Y="$X"\nrun $Y', ["1"]),
        ('export "X=1 2"\nrun $X', ["1", "2"]),
        ("X=~/a\nrun $X ~/b", ["/root/a", "/root/b"]),
        ("run 您好 '<x>'", ["您好", "<x>"]),
    ],
)
def test_words_are_those_of_bash(text: str, made: list[str]) -> None:
    read_words = [shown(fill(w, {})).replace("${HOME}", "/root") for w in last(text)]
    assert read_words == made
    if "$4" not in text:
        assert by_bash(text) == made


def last(text: str) -> list[str]:
    """The words of `run` in a script, without itself."""
    commands = [c for c in script(text)[0].commands if c.words[0] == "run"]
    return list(commands[-1].words[1:]) if commands else []


def by_bash(text: str) -> list[str]:
    """What bash gives the command `run` of a script."""
    head = "run() { printf '%s\\0' \"$@\" >&3; }\n"
    into, out = os.pipe()
    os.set_inheritable(out, True)
    try:
        subprocess.run(
            ["bash", "-c", f"exec 3>&{out}\n{head}{text}"],
            env={"PATH": os.defpath, "HOME": "/root"},
            pass_fds=(out,),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=10,
            check=False,
        )
        os.close(out)
        out = -1
        with os.fdopen(into, "rb") as stream:
            into = -1
            return stream.read().decode().split("\0")[:-1]
    finally:
        for left in (into, out):
            if left >= 0:
                os.close(left)


PLAIN = st.text("abz019_-./:,=+", min_size=1, max_size=5)
INNER = st.text("ab 01{}:,'<>|&;#()", max_size=6)
PIECES = st.one_of(
    PLAIN,
    INNER.map(lambda t: '"' + t + '"'),
    INNER.map(lambda t: "'" + t.replace("'", "") + "'"),
    st.sampled_from(
        ["${A}", "${B}", '"$C"', '"${A} x"', "${D:-d}", '"${D:-$B}"', "\\ ", "\\$", '"\\""', "\\\n", "${L[@]}"]
    ),
)
WORDS = st.lists(PIECES, min_size=1, max_size=4).map("".join)


@settings(max_examples=40)
@given(st.lists(INNER, min_size=3, max_size=3), st.lists(WORDS, min_size=1, max_size=4))
def test_any_words_are_those_of_bash(values: list[str], made: list[str]) -> None:
    # a tilde or an assignment in front would mean something else
    sets = "\n".join(f'{name}="{value}"' for name, value in zip("ABC", values, strict=True))
    text = f"{sets}\nL=(1 '2 3')\nrun x{' x'.join(made)}"
    read_words, notes = last(text), script(text)[1]
    # what the grammar does not see is listed, never lost
    assert notes.not_read or read_words == by_bash(text)
    event("listed" if notes.not_read else "read")


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("X=$(hostname)\n", 1, "prints"),
        ("\nX=`hostname -I`\n", 2, "prints"),
        ("X=$((1+2))\n", 1, "prints"),
        ("if [ -z $1 ]; then\n export X=1\nfi\n", 1, "condition"),
        ("[ -z $1 ] && X=1\n", 1, "condition"),
        ("case $1 in a) X=1;; esac\n", 1, "condition"),
        ("for i in 1 2; do echo $i; done\n", 1, "loop"),
        ("while true; do sleep 1; done\n", 1, "loop"),
        ("f() { X=1; }\n", 1, "function"),
        ("(cd /x; run)\n", 1, "brackets"),
        ("run <<EOF\na\nEOF\n", 1, "input"),
        ("run < file\n", 1, "input"),
        ("run | grep x\n", 1, "pipe"),
        ("run || rescue\n", 1, "failure"),
        ("export -n X\n", 1, "options"),
        ("X[1]=2\n", 1, "array"),
        ("run 'open\n", 1, "not understood"),
    ],
)
def test_what_is_not_followed_is_listed(text: str, line: int, why: str) -> None:
    _, notes = script(text)
    assert [(note.line, why in note.why) for note in notes.not_read] == [(line, True)]


def test_what_a_command_prints_is_unknown_and_the_rest_of_the_value_is_not() -> None:
    found, notes = script("IP=$(hostname -I)\nrun $IP:18481 ${#IP}")
    assert [shown(word) for word in found.commands[0].words] == ["run", "$(hostname -I):18481", "${#IP}"]
    assert len(notes.not_read) == 1
    # of a command it is told where the command is taken: an echo is dropped with all that is in it
    assert [note.text for note in found.commands[0].unread] == ["${#IP}"]


def test_exports_and_unsets_as_they_are_at_the_command() -> None:
    text = "export A=1\nB=2\nexport B C=3\nrun a\nunset A Z\nexport C=4\nX=9 run b\nexport Z=5\nrun c\n"
    one, two, three = script(text)[0].commands
    assert (dict(one.env), one.unset) == ({"A": "1", "C": "3", "B": "2"}, ())
    assert (dict(two.env), two.unset) == ({"C": "4", "B": "2", "X": "9"}, ("A", "Z"))
    assert (dict(three.env), three.unset) == ({"C": "4", "B": "2", "Z": "5"}, ("A",))


def test_a_parameter_takes_its_default_only_where_none_is_given() -> None:
    text = "run ${1:-9} $2 ${3:-x}"
    assert words(text) == ["run", "9", "$2", "x"]
    assert words(text, {"1": "7", "2": "8"}) == ["run", "7", "8", "x"]


def test_a_placeholder_is_no_redirection() -> None:
    found, notes = script("ip=<IP_ADDRESS>\nrun --host <your ip> --at http://<您的节点IP>:1 <in >out\n")
    assert [shown(word) for word in found.commands[0].words] == [
        *("run", "--host", "<your ip>", "--at", "http://<您的节点IP>:1"),
    ]
    assert [note.text for note in notes.not_read] == ["<in"]
    assert shown(found.variables["ip"]) == "<IP_ADDRESS>"


def test_the_comment_above_a_command_is_kept_and_one_beside_it_is_not() -> None:
    found, _ = script("# of a\n\nrun a  # beside\nrun b\n# one\n# two\nrun c\n")
    assert [command.comments for command in found.commands] == [("of a",), (), ("one", "two")]


@pytest.mark.parametrize(
    "text",
    [
        "A=x\n" + "A=$A$A\n" * 40,
        "X=1\n" * 3000,
        "run " + "a " * 200_000,
        "{ " * 200 + "a; " + "}; " * 200,
        "((" * 60_000,
        ")" * 100_000,
    ],
    ids=["grows", "statements", "words", "nested", "slow", "slower"],
)
def test_what_would_be_too_much_is_one_line_soon(text: str, monkeypatch) -> None:
    monkeypatch.setattr(syntax, "DEADLINE_S", 1.0)
    began = time.monotonic()
    with pytest.raises(UsageError) as caught:
        script(text)
    assert len(caught.value.lines) == 1
    assert time.monotonic() - began < 30


SIGNS = [
    *"ab \n\\\"'$(){}[]<>|&;#=*!~`0",
    "$(",
    "${",
    "${A:-",
    "if ",
    "fi\n",
    "<<E\n",
    "E\n",
    "export A=",
    "unset ",
    "A=(",
]


@settings(max_examples=150)
@given(st.lists(st.sampled_from(SIGNS), max_size=40).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        script(text)


def test_files_that_are_no_scripts(tmp_path) -> None:
    fifo, big, binary, other = (tmp_path / name for name in ("fifo", "big", "binary", "other"))
    os.mkfifo(fifo)
    big.write_bytes(b"#" * (MAX_BYTES + 1))
    binary.write_bytes(b"\x7fELF\xff\xfe")
    for file, why in (
        (fifo, "regular"),
        (big, "1024 KB"),
        (binary, "UTF-8"),
        (other, "No such file"),
        (tmp_path, "direct"),
    ):
        with pytest.raises(UsageError, match=why):
            content(str(file))
    other.write_bytes(b"run\0")
    with pytest.raises(UsageError, match="no text"):
        script(content(str(other)))
