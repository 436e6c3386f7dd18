"""Variables that came along unasked: dropped with a word, passed on where written, refused where they kill."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.components.conftest import CALLER, HostOf, by_name
from yrnode.components import etcd
from yrnode.components.strays import notes
from yrnode.model.cause import Reason
from yrnode.model.errors import UsageError
from yrnode.process.exit import Exit

LINK = "tcp://10.0.0.2:8000"
STRAYS = {
    "ETCD_NAME": "x",
    "ETCDCTL_ENDPOINTS": "http://x:1",
    "ETCD_PORT": LINK,
    "VLLM_PORT": LINK,
    "HF_TOKEN": "secret",
}
FILE = """
cluster: c
nodes: {{n0: {{address: 10.0.0.1}}}}
env_from: [{script}]
env: {{{env}}}
groups: {{serve: {{ranks: {{n0: 1}}, model: m, unset: [{unset}]}}}}
router: {{node: n0, kind: command, argv: /bin/sh}}
"""


def text(tmp_path: Path, script: str = "", env: str = "", unset: str = "") -> str:
    path = tmp_path / "set.sh"
    path.write_text(script)
    return FILE.format(script=path, env=env, unset=unset)


def test_the_callers_are_dropped_and_named(host_of: HostOf, tmp_path: Path) -> None:
    host = host_of(text(tmp_path), caller={**CALLER, **STRAYS})
    specs = by_name(host).values()
    assert not [(spec.name, name) for spec in specs for name in spec.env if name in STRAYS]
    (line,) = notes(host, specs)
    names = "ETCDCTL_ENDPOINTS, ETCD_NAME, ETCD_PORT, HF_TOKEN, VLLM_PORT"
    assert line == (
        f"variables of yrnode's own environment are dropped: {names}; write what a rank needs into env or env_from"
    )
    quiet = host_of(text(tmp_path))
    assert notes(quiet, by_name(quiet).values()) == []


def test_what_env_from_sets_reaches_those_it_is_for(host_of: HostOf, tmp_path: Path) -> None:
    script = "export ETCD_NAME=x VLLM_PORT=30000 HF_TOKEN=secret\n"
    host = host_of(text(tmp_path, script), caller={**CALLER, "HF_TOKEN": "other"})
    specs = by_name(host)
    for name in ("rank/serve/0", "router"):
        assert (specs[name].env["ETCD_NAME"], specs[name].env["VLLM_PORT"]) == ("x", "30000")
    for name in ("etcd", "worker"):
        assert not {"ETCD_NAME", "VLLM_PORT", "HF_TOKEN"} & specs[name].env.keys()
    (line,) = notes(host, specs.values())
    assert line.startswith("env_from sets ETCD_NAME: ")
    assert "etcd does not" in line


@pytest.mark.parametrize("value", [LINK, "x", "80.5", "-1"])
def test_a_service_link_from_a_script_is_refused_with_its_line(host_of: HostOf, tmp_path: Path, value: str) -> None:
    script = f"# of the platform\nexport A=1\nexport VLLM_PORT={value}\nexport MY_VLLM_PORT=1\n"
    with pytest.raises(UsageError) as caught:
        by_name(host_of(text(tmp_path, script)))
    (line,) = caught.value.lines
    assert line.startswith(f'env_from: {tmp_path}/set.sh:3: VLLM_PORT is "{value}"')
    assert line.endswith("remove it, or write unset: [VLLM_PORT] in groups.serve")
    # both cures work
    assert "VLLM_PORT" not in by_name(host_of(text(tmp_path, script, unset="VLLM_PORT")))["rank/serve/0"].env
    own = by_name(host_of(text(tmp_path, script, env="VLLM_PORT: 30000")))["rank/serve/0"].env
    assert own["VLLM_PORT"] == "30000"


def test_a_value_that_only_the_host_knows(host_of: HostOf, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'groups\.serve\.env: VLLM_PORT is "", which vLLM refuses'):
        by_name(host_of(text(tmp_path, env='VLLM_PORT: "${VLLM_PORT}"'), caller={**CALLER, **STRAYS}))


@pytest.mark.parametrize(("machine", "told"), [("x86_64", None), ("aarch64", "arm64")])
def test_an_old_etcd_on_aarch64_is_told_that_it_is_meant(
    host_of: HostOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, told: str | None
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    specs = by_name(host_of(text(tmp_path)))
    assert specs["etcd"].env.get("ETCD_UNSUPPORTED_ARCH") == told
    assert "ETCD_UNSUPPORTED_ARCH" not in specs["worker"].env
    line = "etcd on unsupported platform without ETCD_UNSUPPORTED_ARCH=arm64 set"
    assert etcd.read_death(Exit(code=1), False, [line]).reason is Reason.CONFIGURATION
