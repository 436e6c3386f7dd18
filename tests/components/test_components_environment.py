"""A child's environment: from a short list, env_from and the file, with nothing of the caller's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.components.conftest import CALLER, HostOf, by_name
from yrnode.components import etcd
from yrnode.components.environment import base, expand, sourced
from yrnode.model.errors import UsageError

CLUSTER = """
cluster: c
nodes: {{n0: {{address: 10.0.0.1, env: {{NODE: node}}}}, n1: {{address: 10.0.0.2}}}}
etcd: {{nodes: [n0]}}
env_from: [{env_from}]
env: {{A: cluster, NODE: cluster, SEEN: "${{CANN}}"}}
groups:
  serve:
    ranks: {{n0: 1}}
    model: m
    env: {{A: group, LD_LIBRARY_PATH: "/mine:${{LD_LIBRARY_PATH}}", GONE: "${{NO_SUCH}}x", B: "${{A}}!"}}
    unset: [GOOGLE_LOGTOSTDERR]
    nodes: {{n0: {{env: {{HERE: here}}}}}}
router: {{node: n0, kind: command, argv: /bin/sh, env: {{C: "${{CANN}}"}}}}
"""
NOISY = {
    **CALLER,
    "ETCD_NAME": "x",
    "ETCDCTL_API": "3",
    "VLLM_PORT": "1",
    "VLLM_USE_V1": "0",
    "http_proxy": "http://proxy:3128",
    "HTTPS_PROXY": "http://proxy:3128",
    "all_proxy": "x",
    "no_proxy": "mine.only",
    "YRNODE_INSTANCE": "c/n0/etcd/1",
    "YRNODE_CONFIG": "/x",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
    "PYTHONSTARTUP": "/x",
    "BASH_ENV": "/x",
    "DS_WORKER_ADDR": "other:1",
    "GOOGLE_LOGTOSTDERR": "1",
    "RANDOM_THING": "x",
    "LC_ALL": "C.UTF-8",
    "LANG": "C",
    "TZ": "UTC",
    "LD_LIBRARY_PATH": "/image/lib",
    "ASCEND_HOME_PATH": "/ascend",
    "ASCEND_RT_VISIBLE_DEVICES": "0,1",
}


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "set env.sh"
    path.write_text(
        "echo noise; export CANN=/usr/local/cann\nexport LD_LIBRARY_PATH=$CANN/lib:$LD_LIBRARY_PATH\nNOT_EXPORTED=1\n"
        'export MULTI="a\nb"; unset ASCEND_RT_VISIBLE_DEVICES\n'
    )
    return json.dumps(str(path))


def test_nothing_of_the_callers_leaks(host_of: HostOf, script: str) -> None:
    specs = by_name(host_of(CLUSTER.format(env_from=script), caller=NOISY))
    hosts = "127.0.0.1,localhost,::1,10.0.0.1,10.0.0.2"
    for name, spec in specs.items():
        assert (spec.env["no_proxy"], spec.env["NO_PROXY"]) == (hosts, hosts), name
        leaked = [
            v
            for v in spec.env
            if (
                v != etcd.UNSUPPORTED
                and v.startswith(("ETCD", "YRNODE", "BASH", "PROTOCOL", "GOOGLE", "RANDOM", "PYTHONSTART"))
            )
            or v.lower() in ("http_proxy", "https_proxy", "all_proxy")
            or (v.startswith("VLLM_") and v != "VLLM_RPC_BASE_PATH")
        ]
        assert leaked == [], name
        assert (spec.env["LC_ALL"], spec.env["LANG"], spec.env["TZ"], spec.env["HOME"]) == (
            *("C.UTF-8", "C", "UTC", "/root"),
        )
    # what a container image sets for the engine is for the engine
    for name in ("etcd", "worker"):
        assert not {"LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "CANN", "A", "DS_WORKER_ADDR"} & specs[name].env.keys()
    kv = next(c.params["env"] for c in specs["worker"].checks if c.name == "kv")
    assert not {"http_proxy", "LD_LIBRARY_PATH", "YRNODE_INSTANCE"} & kv.keys()


def test_a_ranks_variables(host_of: HostOf, script: str) -> None:
    env = by_name(host_of(CLUSTER.format(env_from=script), caller=NOISY))["rank/serve/0"].env
    assert (env["CANN"], env["SEEN"], env["MULTI"]) == ("/usr/local/cann", "/usr/local/cann", "a\nb")
    # what env_from made of the image's value, and the file's own before it
    assert env["LD_LIBRARY_PATH"] == "/mine:/usr/local/cann/lib:/image/lib"
    assert env["ASCEND_HOME_PATH"] == "/ascend"
    # each rank sees its own devices, whatever the caller saw
    assert env["ASCEND_RT_VISIBLE_DEVICES"] == "0"
    assert "NOT_EXPORTED" not in env
    assert (env["A"], env["NODE"], env["HERE"], env["GONE"]) == ("group", "node", "here", "x")
    assert env["B"] == "group!"
    assert not {"SHLVL", "_", "OLDPWD"} & env.keys()


def test_the_router_sees_env_from_and_its_own(host_of: HostOf, script: str) -> None:
    env = by_name(host_of(CLUSTER.format(env_from=script), caller=NOISY))["router"].env
    assert (env["C"], env["CANN"]) == ("/usr/local/cann", "/usr/local/cann")
    assert "A" not in env


def test_what_a_group_unsets_is_gone_wherever_it_came_from(host_of: HostOf, tmp_path: Path) -> None:
    path = tmp_path / "set.sh"
    path.write_text("export GOOGLE_LOGTOSTDERR=1 KEPT=1\n")
    spec = by_name(host_of(CLUSTER.format(env_from=path)))["rank/serve/0"]
    assert spec.unset == ("GOOGLE_LOGTOSTDERR",)
    assert "GOOGLE_LOGTOSTDERR" not in spec.env
    assert spec.env["KEPT"] == "1"


def test_what_is_taken_over() -> None:
    assert base(NOISY).keys() == {"PATH", "HOME", "LC_ALL", "LANG", "TZ"}
    more = {"LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "ASCEND_RT_VISIBLE_DEVICES"}
    assert base(NOISY, engine=True).keys() == base(NOISY).keys() | more


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"A": "x${B}y${B}"}, "xbyb"),
        ({"A": "${A}:${A}"}, "a:a"),
        ({"A": "${NONE}"}, ""),
        # an empty path would mean the working directory; what is typed stays
        ({"MY_PATH": "/x:${NONE}:/y:${NONE}"}, "/x:/y"),
        ({"MY_PATH": "/x::${B}:"}, "/x::b:"),
        # no list of paths
        ({"A": "host:${NONE}:/y:${NONE}"}, "host::/y:"),
        ({"A": "$B ${b-} ${} $${B}"}, "$B ${b-} ${} $b"),
        # what a value brings in is not looked at again
        ({"B": "${C}", "A": "${B}"}, "${D}"),
    ],
)
def test_expansion(values: dict[str, str], expected: str) -> None:
    assert expand(values, {"A": "a", "B": "b", "C": "${D}", "D": "d"})[list(values)[-1]] == expected


def write(tmp_path: Path, text: str, name: str = "x.sh") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_scripts_are_sourced_in_order_without_arguments(tmp_path: Path) -> None:
    scripts = [write(tmp_path, f'export X="${{X}}{i}$#"\n', f"{i}.sh") for i in range(12)]
    found = sourced(scripts, {"PATH": "/usr/bin:/bin", "KEPT": "1"})
    assert found["X"] == "".join(f"{i}0" for i in range(12))
    assert found["KEPT"] == "1"
    assert sourced([], {"A": "1"}) == {"A": "1"}


def test_a_name_that_a_shell_would_take_apart(tmp_path: Path) -> None:
    path = write(tmp_path, "export X=1\n", "a'b $(touch pwned) \"c.sh")
    assert sourced([path], CALLER)["X"] == "1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo why >&2\nreturn 3\n", "failed: why"),
        ("false\n", "failed: no message"),
        ("if then\n", "line 1"),
        ("exit 3\n", "failed: no message"),
        # not an error to the shell, but everything it set is lost
        ("export X=1; exit 0\n", "failed: no message"),
    ],
)
def test_a_script_that_fails_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as e:
        sourced([path], CALLER)
    assert str(e.value).startswith(f"env_from: {path}")
    assert words in str(e.value)
    assert "\n" not in str(e.value)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        sourced([tmp_path / "none.sh"], CALLER)


def test_a_script_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yrnode.components.environment._SOURCE_TIMEOUT_S", 0.3)
    with pytest.raises(UsageError, match="cannot source"):
        sourced([write(tmp_path, "read x < /dev/tty || exec sleep 5\n")], CALLER)
