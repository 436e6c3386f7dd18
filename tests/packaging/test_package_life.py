"""Real packages on a real systemd without a network: installed, upgraded under load, refused, removed, purged."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import wheelhouse

from tests.packaging.host import CONFIG, KINDS, SETUP, Deb, Host, Rpm
from tests.support.etcd import PARTS
from tests.support.prometheus import PROMTOOL, needs_promtool
from yrnode import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
NEXT = "99.1.0"


def build(out: Path, *words: str) -> Path:
    tool = ROOT / "packaging/tools/packages.py"
    done = subprocess.run(
        [sys.executable, tool, "--out", out, *words], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    return out


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of this version for both machines, and of a next one for this machine."""
    out = tmp_path_factory.mktemp("packages")
    build(out)
    build(out, "--arch", "amd64", "--version", NEXT)
    return out


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Deb | Rpm:
    if request.param == "rpm" and not (PARTS / "rpm").exists():
        pytest.skip("rpm is not installed (Debian: rpm)")
    return KINDS[request.param]()


@pytest.fixture
def host(built: Path) -> Iterator[Host]:
    host = Host(built)
    try:
        yield host
    finally:
        host.close()


def package(built: Path, kind: Deb | Rpm, version: str) -> Path:
    names = {".deb": f"yrnode_{version}-1_amd64.deb", ".rpm": f"yrnode-{version}-1.x86_64.rpm"}
    return built / names[kind.suffix]


def install(host: Host, built: Path, kind: Deb | Rpm, version: str = __version__) -> tuple[int, str]:
    return host.both(*kind.install(package(built, kind, version)))


def test_from_installation_to_removal(built: Path, kind: Deb | Rpm, host: Host) -> None:
    before = host.files()
    code, said = install(host, built, kind)
    assert code == 0, said
    assert "yrnode: put a cluster file into /etc/yrnode/cluster.yaml" in said
    assert host.version() == __version__
    assert host.box.systemctl("is-enabled", "yrnode", check=False) == "disabled"
    assert host.box.show("ActiveState") == "inactive"
    assert host.box.run("sh", "-c", "systemd-analyze verify yrnode.service 2>&1") == ""
    assert "yrnode kv-check" in host.box.run("man", "yrnode")
    assert host.box.run(
        "yrnode", "check", "--config", "/usr/share/yrnode/config/glm5-w4a8-a3-single.yaml", check=False
    )

    host.start()
    url = f"http://{host.api}"
    assert host.box.run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"{url}/readyz") == "200"
    assert json.loads(host.box.run("yrnode", "status", "-o", "json"))["ready"]
    main, children = host.main(), host.children()
    assert len(children) >= 4, "etcd, worker, and an engine with its core"

    with host.under_requests() as answers:
        code, said = install(host, built, kind, NEXT)
        assert code == 0, said
        assert "put a cluster file" not in said
        host.wait_new_main(main)
        asked = len(answers)
        host.wait("further answers", lambda: len(answers) > asked + 5, 20)
    assert set(answers) == {"ok"}
    assert host.children() == children
    assert host.version() == host.status()["version"] == NEXT
    assert [name.startswith(f"{NEXT}-") for name in host.environments()] == [True]
    assert host.box.run("cat", CONFIG) + "\n" == host.text

    code, said = host.both(*kind.remove)
    assert code == 0, said
    assert host.box.processes() == {}
    assert "what this node runs stops now" in said
    assert (
        "these stay, and what the cluster file names elsewhere: /etc/yrnode /var/lib/yrnode /var/log/yrnode" in said
    )
    if isinstance(kind, Deb):
        code, said = host.both("dpkg", "-P", "yrnode")
        assert code == 0, said
        assert re.findall("these stay, .*", said) == [
            "these stay, and what the cluster file names elsewhere: /etc/yrnode /var/lib/yrnode"
        ]
        kept = ("/etc/yrnode", "/var/lib/yrnode")
    else:
        kept = ("/etc/yrnode", "/var/lib/yrnode", "/var/log/yrnode", "/run/yrnode")
    assert sorted(f for f in host.files() - before - kind.parents if not f.startswith(kept)) == []
    assert host.box.run("cat", CONFIG) + "\n" == host.text
    assert host.box.run("ls", "/var/lib/yrnode/etcd") != ""


@needs_promtool
def test_promtool_is_content_with_what_the_service_says(built: Path, host: Host) -> None:
    install(host, built, Deb())
    host.start()
    text = host.box.run("curl", "-s", f"http://{host.api}/metrics") + "\n"
    assert "yrnode_" in text
    assert host.box.run(PROMTOOL, "check", "metrics", stdin=text) == ""


def test_an_upgrade_that_fails_changes_nothing_that_runs(built: Path, kind: Deb | Rpm, host: Host) -> None:
    install(host, built, kind)
    host.start()
    main, children, environments = host.main(), host.children(), host.environments()

    def refused(says: str) -> None:
        code, said = install(host, built, kind, NEXT)
        assert code == kind.fails, said
        assert says in said
        assert f"then run {SETUP}" in said
        assert (host.main(), host.children()) == (main, children)
        assert (host.environments(), host.version()) == (environments, __version__)
        assert host.get("/readyz")[0] == 200

    host.box.write(CONFIG, host.text + "no_such_key: 1\n")
    refused(f"yrnode: version {NEXT} does not take the cluster file that runs, and nothing has changed.")
    host.box.write(CONFIG, host.text)
    host.box.write("/etc/yrnode/environment", "YRNODE_PYTHON=/usr/bin/false\n")
    refused("yrnode: YRNODE_PYTHON=/usr/bin/false is none of Python 3.10 3.11 3.12 3.13")
    host.box.write("/etc/yrnode/environment", "")
    killed_half_way(host, kind.install(package(built, kind, NEXT)))
    assert (host.main(), host.children(), host.version()) == (main, children, __version__)
    # what was said to be done does it
    assert host.both(*(["dpkg", "--configure", "yrnode"] if isinstance(kind, Deb) else [SETUP]))[0] == 0
    host.wait_new_main(main)
    assert host.children() == children
    assert host.version() == NEXT
    assert len(host.environments()) == 1


def killed_half_way(host: Host, words: list[str]) -> None:
    """As by a power cut: while the new version's environment is being filled."""
    child = host.box.run("sh", "-c", 'setsid "$@" >/run/half 2>&1 </dev/null & echo $!', "sh", *words)
    packages = "ls -d /usr/lib/yrnode/venvs/99*/lib/python3*/site-packages/aiohttp"
    host.wait("half an environment", lambda: host.box.run("sh", "-c", packages, check=False), 60)
    host.box.run("kill", "-KILL", "--", f"-{child}")
    assert len(host.environments()) == 2


def test_a_version_that_does_not_start_gives_way_to_the_one_before(built: Path, host: Host) -> None:
    install(host, built, Deb())
    host.start()
    children = host.children()
    # systemd waits this long for what a start is to say
    host.drop_in("late", "TimeoutStartSec=15s")
    host.box.write(
        "/etc/systemd/system/yrnode.service.d/broken.conf",
        f"[Service]\nExecStartPre=/bin/sh -c 'readlink /usr/lib/yrnode/venv | grep -qv {NEXT}'\n",
    )
    code, said = install(host, built, Deb(), NEXT)
    assert code == 1
    assert f"yrnode: version {NEXT} did not start (journalctl -u yrnode); the one before it is back." in said
    host.wait("the one before", lambda: host.status()["ready"], 60)
    assert host.status()["version"] == host.version() == __version__
    assert host.children() == children


def test_each_python_that_is_here_can_carry_it(built: Path, host: Host) -> None:
    """Those of this machine; at least its own."""
    install(host, built, Deb())
    tried = []
    for version in wheelhouse.PYTHONS:
        for path in (
            f"/usr/bin/python{version}",
            *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")),
        ):
            if host.both("test", "-x", path)[0] == 0:
                code, said = host.both("env", f"YRNODE_PYTHON={path}", SETUP)
                assert code == 0, said
                python = host.box.run("head", "-n", "1", "/usr/bin/yrnode").removeprefix("#!")
                assert host.box.run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])") == version
                assert host.version() == __version__
                tried.append(path)
    print("tried:", tried)
    assert tried
    assert len(host.environments()) == 1


def test_without_systemd_a_daemon_that_runs_is_never_left_without_its_files(built: Path, host: Host) -> None:
    """As in a container: told at the upgrade, and a removal that waits for it."""
    host.box.run("mv", "/run/systemd/system", "/run/systemd/aside")
    try:
        assert install(host, built, Deb())[0] == 0
        host.box.write(CONFIG, host.text)
        host.box.run("sh", "-c", "setsid yrnode run >/run/out 2>&1 </dev/null &")
        host.wait_ready()
        pid = host.box.run("pgrep", "-f", "/yrnode run")
        host.box.write("/etc/systemd/system/yrnode.service", "# of an installation from the source\n")
        code, said = install(host, built, Deb(), NEXT)
        assert code == 0, said
        assert f"yrnode: the version before still runs as pid {pid}: kill -USR1 {pid}, then yrnode run" in said
        assert "yrnode: /etc/systemd/system/yrnode.service goes before the package's unit: remove it" in said
        assert len(host.environments()) == 2
        code, said = host.both("dpkg", "-r", "yrnode")
        assert code != 0
        assert (
            f"yrnode run goes on outside the service (pid {pid}), so the package stays: kill -TERM it first" in said
        )
        assert host.version() == NEXT
        assert host.status()["ready"]
        host.box.run("kill", pid)
        host.wait("its end", lambda: not host.box.run("pgrep", "-f", "/yrnode run", check=False), 60)
        assert host.both("dpkg", "-r", "yrnode")[0] == 0
        assert host.box.run("ls", "/usr/lib/yrnode", check=False) == ""
    finally:
        host.box.run("mv", "/run/systemd/aside", "/run/systemd/system")


def test_two_builds_are_alike_and_both_machines_get_the_same(built: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again")
    assert (again / "SHA256SUMS").read_text().count("\n") == 7
    for line in (again / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert wheelhouse.sha256(built / name) == digest, name
    names = {}
    for arch, machine in wheelhouse.MACHINES.items():
        deb = built / f"yrnode_{__version__}-1_{arch}.deb"
        listing = subprocess.run(["dpkg", "-c", deb], capture_output=True, text=True, timeout=60, check=True).stdout
        files = [line.split()[5] for line in listing.splitlines()]
        other = set(wheelhouse.MACHINES.values()) - {machine}
        assert not [f for f in files if f.endswith(".whl") and other & set(re.findall("x86_64|aarch64", f))]
        names[arch] = {re.sub(r"-[^-]*\.whl$", "", f) for f in files}
        assert {f"./usr/lib/yrnode/wheelhouse/pydantic_core-2.50.5-cp3{n}-cp3{n}" for n in (10, 11, 12, 13)} <= names[
            arch
        ]
    assert names["amd64"] == names["arm64"]


def test_the_rpm_says_what_the_deb_says(built: Path) -> None:
    rpm = Rpm()
    if not (PARTS / "rpm").exists():
        pytest.skip("rpm is not installed (Debian: rpm)")

    def ask(machine: str, *words: str) -> list[str]:
        file = built / f"yrnode-{__version__}-1.{machine}.rpm"
        done = subprocess.run([*rpm.rpm, "-qp", *words, file], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()

    for arch, machine in wheelhouse.MACHINES.items():
        deb = built / f"yrnode_{__version__}-1_{arch}.deb"
        listing = subprocess.run(["dpkg", "-c", deb], capture_output=True, text=True, timeout=60, check=True).stdout
        there = {line.split()[5].removeprefix(".") for line in listing.splitlines() if not line.startswith("d")}
        listed = ask(machine, "--qf", "[%{FILEMODES:perms} %{FILENAMES}\n]")
        ours = {line.split()[1] for line in listed if not line.startswith("d")}
        moved = {f for f in there ^ ours if not re.search("copyright$|LICENSE$|_yrnode$", f)}
        assert moved == set()
        assert ask(machine, "--qf", "%{ARCH} %{NAME} %{VERSION} %{BUILDHOST}\n") == [
            f"{machine} yrnode {__version__} localhost"
        ]
        assert "python3" in ask(machine, "--requires")
        scripts = "\n".join(ask(machine, "--scripts"))
        assert re.findall(r"^slot=(\w+)", scripts, re.MULTILINE) == ["post", "preun", "postun"]


@pytest.mark.parametrize("name", ["setup", "deb", "rpm"])
def test_shellcheck_is_content(name: str) -> None:
    import packages

    program = next((p for p in (PARTS / "shellcheck", Path("/usr/bin/shellcheck")) if p.exists()), None)
    if program is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        # the slot is for those that have several
        [program, "-s", "sh", "-e", "SC2034", "-"],
        input=packages.script(name, name, "1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == ""
