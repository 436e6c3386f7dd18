"""The man page and the completions know every verb and every option, because they are made of the parsers."""

from __future__ import annotations

import shutil
import subprocess

import completions
import manual
import pytest

from yrnode.cli.main import VERBS, parser_of


@pytest.fixture(scope="module")
def page() -> str:
    return manual.manual()


@pytest.fixture(scope="module")
def bash() -> str:
    return completions.completions("bash")


def section(page: str, verb: str) -> str:
    _, _, rest = page.partition(f".SS yrnode {verb.replace('-', chr(92) + '-')}")
    assert rest, verb
    return rest.partition("\n.S")[0]


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_has_what_a_verb_takes(page: str, verb: str) -> None:
    text = section(page, verb).replace(r"\-", "-").replace(r"\[u2026]", "…")
    for action in manual.own(parser_of(verb)):
        assert f"\\fB{manual.named(action)}\\fR\n{action.help}" in text


def test_the_page_has_once_what_all_verbs_take(page: str) -> None:
    shared = {verb: [manual.named(a) for a in manual.common(parser_of(verb))] for verb in VERBS}
    assert all(names == shared["run"] for names in shared.values())
    for name in shared["run"]:
        plain = name.replace("-", r"\-")
        assert page.count(f"\\fB{plain}\\fR") == 1


def test_an_option_that_is_new_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_one_more(verb: str) -> object:
        parser = parser_of(verb)
        parser.add_argument("--new-one", help="brand new")
        return parser

    monkeypatch.setattr(manual, "parser_of", with_one_more)
    assert manual.manual().count("brand new") == len(VERBS)


def test_the_page_has_one_date_for_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert '"1970-01-02"' in manual.manual().splitlines()[0]


@pytest.mark.skipif(not shutil.which("groff"), reason="no groff here")
def test_the_page_is_sound_for_groff(page: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-Tutf8"], input=page, capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stderr == ""


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    asked = " ".join(f"'{w}'" for w in words)
    ask = f"COMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}\n_shtab_yrnode\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "--norc"], input=f"{script}\n{ask}", capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout.split()


def test_bash_offers_every_verb(bash: str) -> None:
    assert set(completed(bash, "yrnode", "")) == set(VERBS)
    assert completed(bash, "yrnode", "sta") == ["status", "start"]


def test_bash_offers_every_option_of_every_verb(bash: str) -> None:
    for verb in VERBS:
        options = {flag for action in parser_of(verb)._actions for flag in action.option_strings}
        assert set(completed(bash, "yrnode", verb, "-")) == options


def test_bash_offers_values(bash: str) -> None:
    assert completed(bash, "yrnode", "status", "-o", "") == ["text", "json"]
    assert completed(bash, "yrnode", "probe", "") == ["live", "ready"]
    assert "daemon-kill" in completed(bash, "yrnode", "drill", "")
    assert "/etc/" in [word.rstrip("/") + "/" for word in completed(bash, "yrnode", "check", "--config", "/et")]


def test_zsh_has_every_verb_and_option() -> None:
    script = completions.completions("zsh")
    assert script.startswith("#compdef yrnode\n")
    for verb in VERBS:
        _, found, rest = script.partition(f"\n_shtab_yrnode_{verb.replace('-', '_')}_options=(\n")
        assert found, verb
        options = rest.partition("\n)\n")[0]
        flags = {flag for action in parser_of(verb)._actions for flag in action.option_strings}
        assert [flag for flag in sorted(flags - {"-h"}) if flag not in options] == []
