"""Every relative link of every page leads somewhere: to a file, and to a heading of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "packaging").rglob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"```.*?```", re.DOTALL)


def links(text: str) -> Iterator[str]:
    yield from (target for target in _LINK.findall(_CODE.sub("", text)) if "://" not in target)


def anchors(text: str) -> set[str]:
    """As the hosting sites make them: small letters, signs away, blanks to dashes."""
    heads = re.findall(r"^#+ +(.+?) *$", _CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken(page: Path, text: str) -> list[str]:
    found = []
    for link in links(text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken(page, page.read_text("utf-8")) == []


def test_a_broken_link_is_seen() -> None:
    text = "[a](docs/none.md) [b](README.md#no-such-heading) [c](README.md#use-it) [d](https://a.b/c)"
    assert broken(ROOT / "page.md", text) == ["docs/none.md", "README.md#no-such-heading"]


def test_every_page_of_docs_is_reached_from_the_readme() -> None:
    reached = {(ROOT / link.partition("#")[0]).resolve() for link in links((ROOT / "README.md").read_text("utf-8"))}
    assert {page for page in PAGES if page.parent.name == "docs"} <= reached
