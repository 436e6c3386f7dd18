"""A host with a real systemd and no network, on which packages are installed, and what both kinds have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.etcd import PARTS
from tests.support.node import BIN, YrNode, cluster_text
from tests.systemd.box import Box, Service

CONFIG = "/etc/yrnode/cluster.yaml"
SETUP = "/usr/lib/yrnode/setup"
# their content is the host's own bookkeeping: of packages, of manual pages, of systemd
_OTHERS = (
    "/var/lib/dpkg",
    "/var/log/dpkg.log",
    "/var/lib/rpm",
    "/var/cache",
    "/var/lib/systemd",
    "/var/log/journal",
    "/run/systemd",
)
_SEEN = "find /etc /usr /opt /srv /var /var/log /run -xdev"


class Host(Service):
    """Its cluster file has etcd, a worker and a rank in the directories that yrnode has by default."""

    def __init__(self, *see: Path) -> None:
        text = cluster_text(ranks=1, bin_=f", etcd: {BIN}/etcd, dscli: {BIN}/dscli")
        # of this checkout: the stand-in's client of the datasystem is no part of the package
        text = text.replace("[python,", f"[{BIN}/python,")
        self.text = "".join(f"{line}\n" for line in text.splitlines() if line and "_dir: ./" not in line)
        YrNode.__init__(self, self.text)
        try:
            self.box = Box(self.dir, *see)
        except BaseException:
            YrNode.close(self)
            raise
        # Debian would index all manual pages anew after each step
        self.box.run("rm", "-f", "/var/lib/man-db/auto-update")

    def both(self, *words: str, timeout: float = 180) -> tuple[int, str]:
        """Exit code, and all that was said."""
        text = self.box.run("sh", "-c", '"$@" 2>&1; echo "$?"', "sh", *words, timeout=timeout)
        said, _, code = text.rpartition("\n")
        return int(code), said

    def files(self) -> set[str]:
        """Everything where packages put things, but for what belongs to others."""
        found = self.box.run(*_SEEN.split()).splitlines()
        return {f for f in found if not f.startswith(_OTHERS)}

    def start(self) -> None:  # type: ignore[override]
        self.box.write(CONFIG, self.text)
        self.box.systemctl("enable", "--now", "yrnode")
        self.wait_ready()

    def version(self) -> str:
        return self.box.run("yrnode", "--version").removeprefix("yrnode ")

    def environments(self) -> list[str]:
        return self.box.run("ls", "/usr/lib/yrnode/venvs").split()


class Deb:
    """How dpkg does it. `fails`: what it answers where a script of the package fails."""

    fails = 1
    parents: frozenset[str] = frozenset()
    suffix = ".deb"

    def install(self, file: Path) -> list[str]:
        return ["dpkg", "-i", str(file)]

    remove = ("dpkg", "-r", "yrnode")


class Rpm:
    """How rpm does it, here by Debian's; its database knows of no Python."""

    fails = 0
    # on a host of its kind they are there
    parents = frozenset({"/usr/share/licenses", "/usr/share/zsh/site-functions"})
    suffix = ".rpm"

    def __init__(self) -> None:
        usr = PARTS.parent
        libraries = ":".join(map(str, usr.glob("lib/*-linux-gnu")))
        self.rpm = ["env", f"LD_LIBRARY_PATH={libraries}", f"RPM_CONFIGDIR={usr}/lib/rpm", str(PARTS / "rpm")]
        self.remove = (*self.rpm, "--force-debian", "-e", "yrnode")

    def install(self, file: Path) -> list[str]:
        return [*self.rpm, "--force-debian", "--nodeps", "--oldpackage", "--replacepkgs", "-U", str(file)]


KINDS: dict[str, Callable[[], Deb | Rpm]] = {"deb": Deb, "rpm": Rpm}
