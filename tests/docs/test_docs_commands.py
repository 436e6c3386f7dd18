"""Every command of ours in the pages is one that there is, with flags that it takes; every file of ours is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from yrnode.cli.main import VERBS, parser_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")])
_CODE = re.compile(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)
_COMMAND = re.compile(r"(?:^|[\s(/&])yrnode ([a-z][a-z-]*)((?: (?!&&)[^\n|#;&)]*)?)")
_FLAG = re.compile(r"(?:^| )\[?(--?[a-z][a-z-]*)")
FILE = re.compile(r"(?<![\w./-])((?:packaging|systemd|config|docs)/[\w./-]*\w)")


def code(text: str) -> Iterator[str]:
    """What stands in code, with each command on a line of its own."""
    for block, word in _CODE.findall(text):
        yield from (line.split(" #", 1)[0] for line in (block or word).splitlines())


def flags_of(verb: str) -> set[str]:
    return {flag for action in parser_of(verb)._actions for flag in action.option_strings}


def wrong(text: str) -> list[str]:
    found = []
    for line in code(text):
        for verb, rest in _COMMAND.findall(line):
            if verb not in VERBS:
                found.append(f"yrnode {verb}")
                continue
            ours = rest.split(" -- ")[0]
            found += [f"yrnode {verb} {flag}" for flag in _FLAG.findall(ours) if flag not in flags_of(verb)]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_are_as_the_program_has_them(page: Path) -> None:
    assert wrong(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_are_there(page: Path) -> None:
    named = {name for line in code(page.read_text("utf-8")) for name in FILE.findall(line)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_what_there_is_not_is_seen() -> None:
    text = "`yrnode relode`, `yrnode status --wach`\n```bash\nx && yrnode drain --timeout 5m --soon  # --no\n```"
    assert wrong(text) == ["yrnode relode", "yrnode status --wach", "yrnode drain --soon"]
