"""The wheels that yrnode needs on a host, by the hashes of packaging/requirements, for each Python of ours."""

from __future__ import annotations

import email
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# glibc 2.28 and older, before openEuler 22.03 (2.34) and Ubuntu 22.04 (2.35)
_GLIBC = ("manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux_2_5", "manylinux1", "manylinux_2_28")


@dataclass(frozen=True)
class Pin:
    """One line of a requirements file. `marker`: where it applies; "" for everywhere."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]

    def line(self, hashes: Iterable[str], marker: str = "") -> str:
        where = f" ; {marker}" if marker else ""
        return f"{self.name}=={self.version}{where}" + "".join(f" --hash=sha256:{h}" for h in hashes) + "\n"


def pins(text: str) -> list[Pin]:
    """Of a requirements file with hashes."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        match = re.fullmatch(r"([\w.-]+)==(\S+)(?: ; (.*?))?((?:\s+--hash=sha256:\w+)+)\s*", line)
        if match is None:
            raise ValueError(f"no pin with hashes: {line[:80]}")
        name, version, marker, hashes = match.groups()
        found.append(Pin(canonicalize_name(name), version, marker or "", tuple(re.findall(r"sha256:(\w+)", hashes))))
    return found


def environment(python: str, arch: str) -> dict[str, str]:
    """What markers ask of a host with this Python."""
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": MACHINES[arch],
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "extra": "",
    }


def download(wanted: list[Pin], python: str, arch: str, where: Path) -> list[Path]:
    """Those pins that apply there, as wheels in `where`, each as its hash says. Kept for the next time."""
    there = environment(python, arch)
    text = "".join(p.line(p.hashes) for p in wanted if not p.marker or Marker(p.marker).evaluate(there))
    kept = where / "requirements.txt"
    if not kept.exists() or kept.read_text() != text:
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        asked = where / "asked.txt"
        asked.write_text(text)
        words = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--implementation", "cp"]
        words += ["--python-version", python, "-d", str(where), "-r", str(asked)]
        words += [word for glibc in _GLIBC for word in ("--platform", f"{glibc}_{MACHINES[arch]}")]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", *words], check=True
        )
        asked.rename(kept)
    return sorted(where.glob("*.whl"))


def name_of(wheel: Path) -> str:
    return parse_wheel_filename(wheel.name)[0]


def requires(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        file = next(n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        lines = email.message_from_bytes(archive.read(file)).get_all("Requires-Dist") or []
    return [Requirement(line) for line in lines]


def needed(root: Path, wheels: Iterable[Path], there: dict[str, str]) -> list[Path]:
    """The wheels that `root` needs, and those that they need: not what only builds. ValueError if one is missing."""
    at_hand = {name_of(w): w for w in wheels}
    found: dict[str, Path] = {}
    ahead = [root]
    while ahead:
        for requirement in requires(ahead.pop()):
            name = canonicalize_name(requirement.name)
            if name in found or (requirement.marker and not requirement.marker.evaluate(there)):
                continue
            if name not in at_hand:
                raise ValueError(f"{name} is needed, and packaging/requirements/base.txt does not pin it")
            found[name] = at_hand[name]
            ahead.append(at_hand[name])
    return sorted(found.values())


def wheelhouse(own: Path, base: list[Pin], pip: Pin, arch: str, cache: Path, where: Path) -> None:
    """Fill `where`: yrnode's own wheel, all that it needs for each of PYTHONS, pip's wheel, and requirements.txt with
    the hashes of what is there."""
    where.mkdir(parents=True)
    wheels = {own}
    for python in PYTHONS:
        kept = download([*base, pip], python, arch, cache / f"{arch}-{python}")
        wheels |= {*needed(own, kept, environment(python, arch)), *(w for w in kept if name_of(w) == "pip")}
    for wheel in wheels:
        shutil.copyfile(wheel, where / wheel.name)
    hashes: dict[tuple[str, str], list[str]] = {}
    for wheel in sorted(where.glob("*.whl")):
        what = wheel.name.split("-")
        hashes.setdefault((canonicalize_name(what[0]), what[1]), []).append(sha256(wheel))
    lines = [p.line(hashes[p.name, p.version], p.marker) for p in base if (p.name, p.version) in hashes]
    mine = Pin("yrnode", own.name.split("-")[1], "", ()).line([sha256(own)])
    (where / "requirements.txt").write_text("".join([mine, *lines]))


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
