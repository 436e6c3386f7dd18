"""`make packages`: a wheel, and for each machine a .deb, a .rpm and the wheelhouse that is in them, into dist/.

Two builds of one commit are alike, byte by byte: all times are the commit's (SOURCE_DATE_EPOCH says another one).
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from string import Template

import wheelhouse

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "packaging/tools"
SCRIPTS = ROOT / "packaging/scripts"
REQUIREMENTS = ROOT / "packaging/requirements"
WORK = ROOT / "build/packages"
SLOTS = {"deb": ("postinst", "prerm", "postrm"), "rpm": ("post", "preun", "postun")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="else dist/")
    parser.add_argument("--arch", action="append", choices=wheelhouse.MACHINES, help="else each of them")
    parser.add_argument("--version", help="another one than the source has, to try an upgrade")
    args = parser.parse_args()
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out.resolve()
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch())
    with tempfile.TemporaryDirectory(prefix="yrnode-build-") as scratch:
        source = Path(scratch, "source")
        version = copy_source(source, args.version)
        wheel = build_wheel(source, out)
        files = [wheel]
        for arch in args.arch or wheelhouse.MACHINES:
            stage = Path(scratch, arch)
            fill(stage, source, wheel, version, arch)
            files.append(archive(stage / "wheelhouse", out / f"yrnode-{version}-wheelhouse-{arch}.tar"))
            files += [package(kind, stage, version, arch, out) for kind in SLOTS]
    sums = [f"{wheelhouse.sha256(file)}  {file.name}\n" for file in files]
    (out / "SHA256SUMS").write_text("".join(sums))
    for file in files:
        print(f"{file.stat().st_size / 1e6:7.1f} MB  {file}")
    print(f"{time.monotonic() - began:7.1f} s")


def epoch() -> int:
    """Seconds of the commit, or what SOURCE_DATE_EPOCH says."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if not given:
        given = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
    return int(given)


def copy_source(where: Path, version: str | None) -> str:
    """What the wheel is built of, without the tree's builds and caches. Returns its version."""
    where.mkdir()
    for name in ("yrnode", "config"):
        shutil.copytree(ROOT / name, where / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, where / name)
    init = where / "yrnode/__init__.py"
    text = init.read_text("utf-8")
    if version:
        text = re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', text, flags=re.MULTILINE)
        init.write_text(text, "utf-8")
    return re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)[0]  # type: ignore[no-any-return]


def build_wheel(source: Path, out: Path) -> Path:
    words = ["wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([sys.executable, "-m", "pip", *words, "-w", made, str(source)], check=True)
        (wheel,) = Path(made).glob("*.whl")
        return Path(shutil.copyfile(wheel, out / wheel.name))


def fill(stage: Path, source: Path, wheel: Path, version: str, arch: str) -> None:
    """All of a package's files that are not in the repository as they are."""
    stage.mkdir()
    base = wheelhouse.pins((REQUIREMENTS / "base.txt").read_text())
    (pip,) = (p for p in wheelhouse.pins((REQUIREMENTS / "packages.txt").read_text()) if p.name == "pip")
    wheelhouse.wheelhouse(wheel, base, pip, arch, WORK, stage / "wheelhouse")
    (stage / "yrnode.1.gz").write_bytes(gzip.compress(generated(source, "manual.py"), mtime=0))
    for shell in ("bash", "zsh"):
        (stage / f"completion.{shell}").write_bytes(generated(source, "completions.py", shell))
    (stage / "setup").write_text(script("setup", "setup", version))
    for kind, slots in SLOTS.items():
        for slot in slots:
            (stage / f"{kind}-{slot}").write_text(script(kind, slot, version))
    for file in stage.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
        # nfpm dates what stands in a tree by its files
        os.utime(file, (epoch(), epoch()))


def generated(source: Path, *words: str) -> bytes:
    tool, *rest = words
    env = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, TOOLS / tool, *rest], env=env, check=True, capture_output=True).stdout


def script(kind: str, slot: str, version: str) -> str:
    """One of a package's scripts, whole: when some of them run, the package's files are not there."""
    head = f"#!/bin/sh\nslot={slot}\nversion={version}\npythons='{' '.join(wheelhouse.PYTHONS)}'\n"
    return head + (SCRIPTS / "common.sh").read_text() + (SCRIPTS / f"{kind}.sh").read_text()


def archive(directory: Path, target: Path) -> Path:
    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
        return info

    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as tar:
        for file in sorted(directory.iterdir()):
            tar.add(file, f"{target.stem}/{file.name}", filter=plain)
    return target


def package(kind: str, stage: Path, version: str, arch: str, out: Path) -> Path:
    machine = arch if kind == "deb" else wheelhouse.MACHINES[arch]
    target = out / (f"yrnode_{version}-1_{machine}.deb" if kind == "deb" else f"yrnode-{version}-1.{machine}.rpm")
    nfpm = Path(sys.executable).with_name("nfpm")
    # nfpm itself fills in no variable where scripts are named
    config = stage / "nfpm.yaml"
    text = Template((ROOT / "packaging/nfpm.yaml").read_text())
    config.write_text(text.substitute(STAGE=stage, VERSION=version, ARCH=arch))
    words = ["pkg", "--config", str(config), "--packager", kind, "--target", str(target)]
    done = subprocess.run([nfpm, *words], cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"nfpm: {done.stdout}{done.stderr}")
    return target


if __name__ == "__main__":
    main()
