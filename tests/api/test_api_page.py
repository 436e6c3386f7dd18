"""The page's parts: what its policy allows, what it is made of, and what a hostile word can do to it."""

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.api.fake import OK, FakeNode, snapshot, view
from tests.support.event_words import UnknownWord, event_words, words_of
from yrnode.api import cache, page
from yrnode.api.app import now_status
from yrnode.model.cause import Cause, Reason
from yrnode.model.group import GroupMove, Phase, Stage
from yrnode.model.state import Move, Plane, State
from yrnode.model.verdict import Verdict
from yrnode.policy.hits import Counts, Hits, Meaning

ROOT = Path(__file__).parents[2]
WEB = Path(page.__file__).parent / "web"
HOSTILE = "{{script}}</main></script><script>alert(1)</script>\"'><svg/onload=alert(2)>"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def tags(text):
    parser = Tags()
    parser.feed(text)
    return parser.found


def rendered(node):
    return page.render(now_status(node), node.events.since(0))


def test_the_policy_names_exactly_what_the_page_holds(tmp_path):
    text = rendered(FakeNode(tmp_path))
    for tag in ("script", "style"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        sha = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{sha}'" in page.policy()
    assert "unsafe" not in page.policy()
    assert "default-src 'none'" in page.policy()


def test_nothing_comes_from_outside(tmp_path):
    text = rendered(FakeNode(tmp_path))
    assert {u for u in re.findall(r"https?://[^\s\"'`)]+", text)} == {"http://www.w3.org/2000/svg"}
    assert [(t, a) for t, a in tags(text) if "src" in a or t in ("link", "iframe", "object")] == []
    assert [(t, a) for t, a in tags(text) if any(n.startswith("on") or n == "style" for n in a)] == []


def test_a_hostile_word_adds_no_element(tmp_path):
    node = FakeNode(tmp_path)
    plain = Cause(Reason.EXITED, "exit code 1", "the last line")
    evil = Cause(Reason.EXITED, HOSTILE, HOSTILE)

    def with_cause(cause):
        node.state = snapshot(view("worker", Plane.CACHE, State.BACKOFF, cause=cause, checks={"health": OK}))
        return [t for t, _ in tags(page.render(now_status(node), [node.events.emit("worker", "stop", cause)]))]

    assert with_cause(evil) == with_cause(plain)


def test_the_script_never_makes_html_of_a_text():
    script = "".join(p.read_text() for p in WEB.glob("*.js"))
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser"):
        assert way not in script
    assert "</script" not in script


def test_every_state_has_a_word_in_chinese():
    words = (WEB / "words.js").read_text()
    drawn = (WEB / "draw.js").read_text()
    kinds = (State, Plane, Move, Phase, Stage, Meaning, GroupMove, Verdict)
    told = re.findall(r'\b(?:t|state|fact|section)\("([^"]+)"', drawn)
    told += [
        word for inside in re.findall(r"\bt\(([^()]*\?[^()]*)\)", drawn) for word in re.findall(r'"([^"]+)"', inside)
    ]
    assert {"ready", "Nodes", "paused", "store answers"} <= set(told)
    asked = {word.value for kind in kinds for word in kind} | event_words()
    # the same in every language
    asked |= set(told) - {"pid", "yrnode"}
    assert [word for word in sorted(asked) if f'"{word}": "' not in words] == []


def test_a_new_word_of_an_event_is_asked_for():
    text = """
class A:
    def one(self):
        self._events.emit("yrnode", "first", cause)
        what = "second" if x else "third"
        self.events.emit(target, what, cause)
        self._say("node", "fourth")
    def _say(self, of, word):
        self._events.emit(of, word, cause, instance="")
    def emit(self, record):
        super().emit(record)
"""
    assert words_of(text, "a.py") == {"first", "second", "third", "fourth"}
    with pytest.raises(UnknownWord, match=r"a\.py:4: some\.thing"):
        words_of(text.replace('"first"', "some.thing"), "a.py")


def luminance(colour):
    whole = colour if len(colour) == 7 else "#" + "".join(c * 2 for c in colour[1:])
    parts = [int(whole[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_aa(scheme):
    blocks = re.findall(r":root \{([^}]*--bg[^}]*)\}", (WEB / "page.css").read_text())
    colours = dict(re.findall(r"--(\w+): (#\w+);", blocks[scheme == "dark"]))
    for text in ("text", "soft", "good", "warn", "bad", "wait", "idle", "two"):
        for back in ("bg", "card", "tint"):
            a, b = sorted((luminance(colours[text]), luminance(colours[back])), reverse=True)
            assert (a + 0.05) / (b + 0.05) >= 4.5, (text, back)


def test_a_series_is_what_came_between_two_points():
    hits = Hits()
    for i in range(40):
        hits.note("rank/serve/0", "life", Counts(100.0 * i, 50.0 * i, 50.0 * i, 10.0 * i), 1000.0 + 5 * i)
    (points,) = cache.series(hits, 1200.0).values()
    assert [p[0] for p in points[:2]] == [190.0, 180.0]
    assert {tuple(p[1:]) for p in points} == {(0.5, 0.2, 0.6)}
    hits.note("rank/serve/1", "life", Counts(), 1000.0)
    assert cache.series(hits, 1200.0)["rank/serve/1"] == []


def test_a_series_has_no_share_where_nothing_was_asked():
    hits = Hits()
    for i in range(4):
        hits.note("r", "life", Counts(7.0, 7.0), 10.0 * i)
    assert [p[1:] for p in cache.series(hits, 30.0)["r"]] == [[None] * 3] * 3


@pytest.mark.slow
def test_a_wheel_has_the_page(tmp_path):
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(words, check=True, timeout=110)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"yrnode/api/web/{p.name}" for p in WEB.iterdir()} <= names
    shutil.rmtree(tmp_path)
