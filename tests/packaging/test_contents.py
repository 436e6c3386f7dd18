"""What goes into the packages fits the repository. Real packages are built and installed by test_packages.py."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import packages
import pytest
import wheelhouse

from tests.docs.test_docs_commands import FILE, code
from tests.docs.test_docs_links import links
from tests.support.prometheus import load
from yrnode.config.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
NFPM = load(ROOT / "packaging/nfpm.yaml")
UNIT = (ROOT / "systemd/yrnode.service").read_text()


def sources() -> list[str]:
    scripts = [s for kind in packages.SLOTS for s in NFPM["overrides"][kind]["scripts"].values()]
    return [*(e["src"] for e in NFPM["contents"] if "src" in e and e.get("type") != "symlink"), *scripts]


def test_each_file_is_in_the_repository_or_made_by_the_build() -> None:
    made = {"wheelhouse/", "setup", "yrnode.1.gz", "completion.bash", "completion.zsh"}
    made |= {f"{kind}-{slot}" for kind, slots in packages.SLOTS.items() for slot in slots}
    asked = {s.removeprefix("${STAGE}/") for s in sources() if s.startswith("${STAGE}/")}
    assert asked == made
    assert [s for s in sources() if not s.startswith("${STAGE}/") and not list(ROOT.glob(s))] == []


def test_each_place_is_taken_once() -> None:
    places = [(e["dst"], e.get("packager")) for e in NFPM["contents"]]
    assert len(set(places)) == len(places)


SHARE = "/usr/share/doc/yrnode"
SOURCE_ONLY = ("packaging/requirements/", "docs/cluster_file.py")
"""The pages name these beside `pip install .`, which takes the source, and as what a page is written by."""


def installed(packager: str) -> set[str]:
    """The files of a package that come from the repository, by where they are installed."""
    found = set()
    for entry in NFPM["contents"]:
        src, dst = entry.get("src", ""), entry["dst"]
        if entry.get("type") or src.startswith("${STAGE}/") or entry.get("packager", packager) != packager:
            continue
        # nfpm: many files go below a directory
        found |= {dst + path.name for path in ROOT.glob(src)} if dst.endswith("/") else {dst}
    return found


def resolved(path: str) -> str:
    """With the symbolic links that the package installs."""
    path = os.path.normpath(path)
    for entry in NFPM["contents"]:
        if entry.get("type") == "symlink" and path.startswith(entry["dst"] + "/"):
            target = os.path.normpath(os.path.join(os.path.dirname(entry["dst"]), entry["src"]))
            path = target + path.removeprefix(entry["dst"])
    return path


def dead(page: str, text: str, packager: str) -> list[str]:
    """What an installed page links to, or names as a file of ours, that is not installed."""
    there = installed(packager)
    found = {os.path.join(os.path.dirname(page), link.partition("#")[0] or page) for link in links(text)}
    if not page.endswith("ARCHITECTURE.md"):
        # that one is a map of the source
        named = {name for line in code(text) for name in FILE.findall(line)}
        found |= {f"{SHARE}/{name}" for name in named if not name.startswith(SOURCE_ONLY)}
    whole = {path: resolved(path) for path in found}
    return sorted(
        path for path, at in whole.items() if at not in there and not any(f.startswith(at + "/") for f in there)
    )


@pytest.mark.parametrize("packager", packages.SLOTS)
def test_what_the_installed_pages_name_is_installed(packager: str) -> None:
    pages = {p: p.removeprefix(SHARE + "/") for p in installed(packager) if p.endswith(".md")}
    assert {"README.md", "README.zh-CN.md", "docs/containers.md"} <= set(pages.values())
    assert {p: missing for p, own in pages.items() if (missing := dead(p, (ROOT / own).read_text(), packager))} == {}


def test_a_page_that_names_what_is_not_installed_is_seen() -> None:
    text = "[a](../packaging/prometheus/alerts.yaml) [b](../Makefile) `packaging/tools/x.py` `config/local-demo.yaml`"
    assert dead(f"{SHARE}/docs/x.md", text, "deb") == [
        f"{SHARE}/docs/../Makefile",
        f"{SHARE}/packaging/tools/x.py",
    ]


def test_the_unit_starts_what_the_package_installs() -> None:
    (link,) = [e for e in NFPM["contents"] if e["dst"] == "/usr/bin/yrnode"]
    assert re.findall(r"^ExecStart=(\S+)", UNIT, re.MULTILINE) == [link["dst"]]
    assert "root=/usr/lib/yrnode\n" in script("setup")
    assert link["src"] == "/usr/lib/yrnode/venv/bin/yrnode"


def test_the_directories_are_those_of_the_unit_and_of_the_defaults() -> None:
    (line,) = [w for w in (ROOT / "packaging/tmpfiles.conf").read_text().splitlines() if w[0] != "#"]
    run_dir = line.split()[1]
    assert run_dir == str(Cluster.model_fields["run_dir"].default)
    for key, base in (("Runtime", "/run"), ("State", "/var/lib"), ("Logs", "/var/log")):
        (name,) = re.findall(rf"^{key}Directory=(\S+)", UNIT, re.MULTILINE)
        assert f"{base}/{name}" in script("deb", "postrm")


def test_what_a_purge_leaves_is_said() -> None:
    (row,) = re.findall(r"^\| `dpkg -P` \| (.*) \|$", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
    assert "rm -rf /var/log/yrnode\n" in script("deb", "postrm")
    kept = "[ -n \"$(find /run/yrnode -name '*.json' 2>/dev/null)\" ] || rm -rf /run/yrnode\n"
    assert kept in script("deb", "postrm")
    assert "`/run/yrnode` unless a record (`*.json`) is in it" in row


def test_the_wheels_are_for_the_pythons_that_yrnode_runs_with() -> None:
    assert 'requires-python = ">=3.10,<3.14"' in (ROOT / "pyproject.toml").read_text()
    assert wheelhouse.PYTHONS == ("3.10", "3.11", "3.12", "3.13")
    assert "pythons='3.10 3.11 3.12 3.13'\n" in script("setup")


def test_what_builds_has_the_pins_of_what_runs() -> None:
    base, build = (
        {(p.name, p.marker): p for p in wheelhouse.pins((ROOT / f"packaging/requirements/{name}.txt").read_text())}
        for name in ("base", "packages")
    )
    assert {key: build.get(key) for key in base} == base


def script(kind: str, slot: str = "") -> str:
    return packages.script(kind, slot or kind, "1.2.3")


@pytest.mark.parametrize("kind", ["setup", "deb", "rpm"])
def test_scripts_are_sound_for_sh(kind: str) -> None:
    subprocess.run(["sh", "-n"], input=script(kind), text=True, timeout=20, check=True)


def choose(tmp_path: Path, found: str, **named: str) -> subprocess.CompletedProcess[str]:
    """What `find_python` says on a host whose only python3 is of the version `found`."""
    python = tmp_path / "python3"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *realpath*) echo "$0";; -V) echo "Python {found}.1";; *) echo {found};; esac\n'
    )
    python.chmod(0o755)
    text = re.sub(r"^PATH=.*$", f"PATH={tmp_path}:/usr/bin:/bin", packages.script("rpm", "none", "1.2.3"), flags=re.M)
    # no other Python of this machine
    text = text.replace("python3 python3.12 python3.11 python3.13 python3.10", "python3").replace(
        "/usr/local/", "/x/"
    )
    text = text.replace("/etc/yrnode/environment 2", f"{tmp_path}/environment 2")
    env = {k: v.replace("HERE", str(tmp_path)) for k, v in named.items()}
    return subprocess.run(
        ["sh"], input=f"{text}\nfind_python", env=env, text=True, capture_output=True, timeout=20, check=False
    )


@pytest.mark.parametrize("found", wheelhouse.PYTHONS)
def test_the_hosts_own_python_is_taken_where_it_fits(tmp_path: Path, found: str) -> None:
    done = choose(tmp_path, found)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(tmp_path / "python3"), "")


@pytest.mark.parametrize("found", ["3.9", "3.14"])
def test_where_none_fits_one_line_says_what_to_do(tmp_path: Path, found: str) -> None:
    done = choose(tmp_path, found)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"yrnode: there is none of Python 3.10 3.11 3.12 3.13 with its module venv here (python3 is Python {found}.1)"
        ": install one, name it in /etc/yrnode/environment as YRNODE_PYTHON=/path/to/python3, then run"
        " /usr/lib/yrnode/setup\n"
    )


def test_a_python_is_named_by_a_variable_or_in_the_file(tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert choose(tmp_path, "3.11", YRNODE_PYTHON=str(other)).stderr.startswith(
        f"yrnode: YRNODE_PYTHON={other} is none"
    )
    assert choose(tmp_path, "3.11", YRNODE_PYTHON="HERE/python3").returncode == 0
    for text in (f"A=1\nYRNODE_PYTHON={other}\nB=2\n", f'YRNODE_PYTHON="{other}"\n'):
        (tmp_path / "environment").write_text(text)
        assert f"YRNODE_PYTHON={other} is none" in choose(tmp_path, "3.11").stderr


def test_pins_are_read_with_markers_and_hashes() -> None:
    first = "A_b==1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    second = "c==2 ; python_version < '3.11' \\\n    --hash=sha256:cc\n"
    assert wheelhouse.pins(first + second) == [
        wheelhouse.Pin("a-b", "1", "", ("aa", "bb")),
        wheelhouse.Pin("c", "2", "python_version < '3.11'", ("cc",)),
    ]
    with pytest.raises(ValueError, match="no pin with hashes: d==1"):
        wheelhouse.pins("d==1\n")


def wheel(where: Path, name: str, *requires: str) -> Path:
    file = where / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        lines = "".join(f"Requires-Dist: {r}\n" for r in requires)
        archive.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{lines}")
    return file


def test_what_is_needed_is_followed_and_nothing_else(tmp_path: Path) -> None:
    def names(python: str) -> list[Any]:
        found = wheelhouse.needed(own, at_hand, wheelhouse.environment(python, "arm64"))
        return [w.name.split("-")[0] for w in found]

    own = wheel(tmp_path, "own", "a>=1", 'x; extra == "dev"')
    at_hand = [
        wheel(tmp_path, "a", "b; python_version < '3.11'", "c; platform_machine == 'aarch64'"),
        wheel(tmp_path, "b"),
        wheel(tmp_path, "c", "a"),
        wheel(tmp_path, "builds"),
    ]
    assert names("3.10") == ["a", "b", "c"]
    assert names("3.11") == ["a", "c"]
    at_hand.pop(2)
    with pytest.raises(ValueError, match="c is needed"):
        names("3.11")
