"""What scripts leave open, contradict or say in other ways comes into the cluster file, or is listed."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yrnode.components.environment import base
from yrnode.config.load import validate
from yrnode.config.scripts.cluster import Imported, imported
from yrnode.config.scripts.groups import KEPT
from yrnode.config.scripts.text import yaml_text
from yrnode.config.yaml import parse
from yrnode.model.errors import UsageError

HERE = Path(__file__).parent / "scripts"
SERVE = "vllm serve /m --port 1025\n"
Bring = Callable[..., Imported]


@pytest.fixture
def bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bring:
    """Imports texts as files of these names, x.sh for a text alone."""
    monkeypatch.chdir(tmp_path)

    def run(text: str = "", deployment: str | None = None, files: Mapping[str, str] | None = None) -> Imported:
        given = {**({"x.sh": text} if text else {}), **(files or {})}
        for name, content in given.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(content)
        return imported(list(given), deployment)

    return run


def data(found: Imported) -> dict:
    return parse(found.text.encode(), "c.yaml").data


def group(found: Imported) -> dict:
    return next(iter(data(found)["groups"].values()))


def told(found: Imported, kind: str = "not_read") -> list[str]:
    return [str(note) for note in getattr(found.notes, kind)]


def about(lines: list[str], *words: str) -> bool:
    return any(all(word in line for word in words) for line in lines)


def pd(**changes: tuple[str, str]) -> dict[str, str]:
    """The scripts of the eight machines, with texts of some files replaced: name of the file → (old, new)."""
    names = (
        "run_etcd.sh",
        "run_yr_worker.sh",
        "proxy.sh",
        *(f"{r}/{n}.sh" for r in "pd" for n in ("run_dp_template", "server")),
    )
    found = {name: (HERE / "pd" / name).read_text() for name in names}
    for name, (old, new) in changes.items():
        at = name.replace("__", "/") + ".sh"
        assert old in found[at]
        found[at] = found[at].replace(old, new)
    return found


def test_a_placeholder_for_the_only_node_is_open(bring: Bring) -> None:
    found = bring('export DS_WORKER_ADDR="<您的节点IP>:18481"\n' + SERVE)
    assert data(found)["nodes"]["n0"]["address"] == "192.0.2.1"
    assert "n0: {address: 192.0.2.1}  # its address is not in the scripts" in found.text
    assert about(told(found, "open"), "nodes.n0.address")
    assert not found.notes.good


def test_another_script_knows_the_address(bring: Bring) -> None:
    yr = (HERE / "a3/run_yr.sh").read_text()
    found = bring('export DS_WORKER_ADDR="<您的节点IP>:18481"\n' + SERVE, files={"yr.sh": yr})
    assert data(found)["nodes"] == {"n0": {"address": "10.0.0.1"}}
    assert found.notes.good


def test_ports_that_are_never_set_are_open(bring: Bring) -> None:
    yr = (HERE / "a3/run_yr.sh").read_text().replace("ETCD_PORT=2379", 'ETCD_PORT="${ETCD_PORT}"')
    found = bring(SERVE, files={"yr.sh": yr})
    assert about(told(found, "open"), "yr.sh:14", "${ETCD_PORT}", "etcd's own is taken")
    assert data(found)["etcd"] == {"nodes": ["n0"], "data_dir": "/tmp/etcd-data"}


def test_addresses_of_the_pair_come_from_the_proxy(bring: Bring) -> None:
    found = bring(files=pd())
    addresses = {name: node["address"] for name, node in data(found)["nodes"].items()}
    assert addresses == {f"{r}{n}": f"10.0.0.{(0 if r == 'p' else 4) + n + 1}" for r in "pd" for n in range(4)}
    assert found.notes.good


def test_or_from_the_comments_above_the_lines(bring: Bring) -> None:
    files = pd()
    del files["proxy.sh"]
    for role, first in (("p", 1), ("d", 5)):
        for at in range(4):
            files[f"{role}/server.sh"] = files[f"{role}/server.sh"].replace("<IP_ADDRESS>", f"10.0.0.{first + at}", 1)
    found = bring(files=files)
    assert [node["address"] for node in data(found)["nodes"].values()] == [f"10.0.0.{n}" for n in range(1, 9)]
    assert found.notes.good


def test_or_they_stay_open_and_all_else_is_there(bring: Bring) -> None:
    files = pd()
    del files["proxy.sh"]
    found = bring(files=files)
    open_ = told(found, "open")
    assert [about(open_, f"nodes.{node}.address") for node in ("p0", "p1", "p3", "d0", "d1")] == [
        False,
        True,
        True,
        False,
        True,
    ]
    assert data(found)["groups"]["decode"]["ranks"] == {"d0": 2, "d1": 2, "d2": 2, "d3": 2}


def test_two_sources_of_an_address_that_differ(bring: Bring) -> None:
    found = bring(files=pd(p__server=("# <IP_ADDRESS> P 主节点", "# 10.0.0.9 P 主节点")))
    assert about(told(found, "open"), "p/server.sh:3", "rank 0", "10.0.0.9 or 10.0.0.1")


def test_all_scripts_in_one_directory(bring: Bring) -> None:
    files = {name.replace("/", "_"): text for name, text in pd().items()}
    assert data(bring(files=files)) == data(bring(files=pd()))


def test_each_node_with_scripts_of_its_own(bring: Bring) -> None:
    files = {name: text for name, text in pd().items() if "/" not in name}
    for role, first in (("p", 1), ("d", 5)):
        template = (HERE / "pd" / role / "run_dp_template.sh").read_text()
        lines = [x for x in (HERE / "pd" / role / "server.sh").read_text().splitlines() if x.startswith("python")]
        for at, line in enumerate(lines):
            files[f"{role}{at}/server.sh"] = line + "\n"
            files[f"{role}{at}/run_dp_template.sh"] = template.replace(
                "local_ip=<IP_ADDRESS>", f"local_ip=10.0.0.{first + at}"
            )
    del files["proxy.sh"]
    found, whole = bring(files=files), data(bring(files=pd()))
    del whole["router"]
    assert data(found) == whole
    assert found.notes.good


def test_a_template_without_its_server_and_the_other_way(bring: Bring) -> None:
    files = pd()
    del files["d/server.sh"]
    found = bring(files=files)
    assert about(told(found), "d/run_dp_template.sh", "no line of a server.sh starts it")
    for name in ("p/run_dp_template.sh", "p/server.sh"):
        with pytest.raises(UsageError, match=r"server\.sh"):
            bring(files={name: pd()[name]})


def test_ranks_that_nobody_starts(bring: Bring) -> None:
    text = pd()["d/server.sh"]
    found = bring(
        files=pd(d__server=(text, text.split("\n\n")[0] + "\n\n" + text.split("\n\n")[1].split("\n")[0] + "\n"))
    )
    assert about(told(found, "open"), "ranks 2 to 7 of 8")
    assert about(told(found, "open"), "--decoder-hosts", "8 servers", "start 2")


def test_sizes_that_mooncake_is_told_and_the_groups_do_not_have(bring: Bring) -> None:
    found = bring(files=pd(p__run_dp_template=('"dp_size": 8', '"dp_size": 16')))
    assert about(told(found, "open"), "p/run_dp_template.sh", "Mooncake's sizes of the consumer")


def test_a_server_of_the_proxy_that_no_script_starts(bring: Bring) -> None:
    found = bring(files=pd(proxy=("6600 6601 \\\n        6600 6601 \\\n", "6600 6601 \\\n        6600 6609 \\\n")))
    assert about(told(found, "open"), "--decoder-hosts[3] 10.0.0.6:6609")


def test_what_follows_from_remote_h2d_is_not_typed_again(bring: Bring) -> None:
    policies = 'export DS_H2D_MEMCPY_POLICY="direct"\nexport DS_D2H_MEMCPY_POLICY="direct"\n'
    change = (policies, "export DS_ENABLE_REMOTE_H2D=1\n")
    found = bring(files=pd(p__run_dp_template=change, d__run_dp_template=change))
    assert data(found)["datasystem"]["args"] == {"log_only_write_info_file": False}
    assert "DS_ENABLE_REMOTE_H2D" not in found.text
    worker = (' \\\n  --remote_h2d_device_ids "0,1,2,3,4,5,6,7"', "")
    without = bring(files=pd(p__run_dp_template=change, d__run_dp_template=change, run_yr_worker=worker))
    assert data(without)["env"]["DS_ENABLE_REMOTE_H2D"] == 1
    assert about(told(without, "open"), "does not pass yet", "DS_ENABLE_REMOTE_H2D", "remote_h2d")


def test_values_that_differ_by_node(bring: Bring) -> None:
    names = [f"run_glm5_w4a8_yuanrong_a2_node{n}.sh" for n in (0, 1)]
    files = {name: (HERE / "a2" / name).read_text() for name in names}
    files[names[1]] = (
        files[names[1]].replace("HCCL_BUFFSIZE=200", "HCCL_BUFFSIZE=400").replace("  --seed 1024 \\\n", "")
    )
    found = bring(files=files)
    assert group(found)["nodes"] == {
        "n0": {"args": {"seed": 1024}, "env": {"HCCL_BUFFSIZE": 200}},
        "n1": {"env": {"HCCL_BUFFSIZE": 400}},
    }
    assert told(found) == []


def test_a_difference_between_ranks_of_one_node_has_no_place(bring: Bring) -> None:
    found = bring(files=pd(d__run_dp_template=("--seed 1024", "--seed $4")))
    assert about(told(found), "--seed", "differs between the ranks of d0")


def test_connectors_that_the_file_has_no_keys_for_stay_a_flag(bring: Bring) -> None:
    config = '{"kv_connector": "YuanRongConnector", "kv_role": "kv_both", "kv_buffer_size": 1e9}'
    found = bring(f"export DS_WORKER_ADDR=10.0.0.1:18481\nvllm serve /m --port 1 --kv-transfer-config '{config}'\n")
    assert group(found)["args"]["kv-transfer-config"] == {
        **{"kv_connector": "YuanRongConnector", "kv_role": "kv_both", "kv_buffer_size": 1e9}
    }
    # nothing of it is derived then
    assert group(found)["env"] == {"DS_WORKER_ADDR": "10.0.0.1:18481"}


def test_own_extras_of_a_store_are_kept(bring: Bring) -> None:
    config = (
        '{"kv_connector": "AscendStoreConnector", "kv_role": "kv_both", '
        '"kv_connector_extra_config": {"backend": "yuanrong", "use_layerwise": false}}'
    )
    found = bring(f"vllm serve /m --port 1 --kv-transfer-config '{config}'\n")
    assert group(found)["kv_connector"] == {
        "ascend_store": {"backend": "yuanrong", "extra": {"use_layerwise": False}}
    }


@pytest.mark.parametrize(
    ("script", "key", "value"),
    [
        ("vllm serve --model /m -tp 4 --port 1", "tensor_parallel", 4),
        ("vllm serve /m --max_model_len=4096", "args", {"max-model-len": 4096}),
        (
            "vllm serve /m --api-key a b --lora-modules x=1 y=2",
            "args",
            {"api-key": ["a", "b"], "lora-modules": ["x=1", "y=2"]},
        ),
        ("vllm serve /m --temperature -1 --flag --x true", "args", {"temperature": -1, "flag": True, "x": "true"}),
        ("vllm serve /m --data-parallel-size 4", "ranks", {"n0": 4}),
        ("vllm serve /m --data-parallel-size 4", "mode", "headless"),
        ("export ASCEND_RT_VISIBLE_DEVICES=8,9\nvllm serve /m -tp 2", "devices", {"n0": [8, 9]}),
        ("export ASCEND_RT_VISIBLE_DEVICES=8,9\nvllm serve /m -tp 4", "env", {"ASCEND_RT_VISIBLE_DEVICES": "8,9"}),
        ("export VLLM_ENGINE_READY_TIMEOUT_S=3600\nvllm serve /m", "start_timeout", "3600s"),
        ("nohup env A=1 vllm serve /m > log 2>&1 &", "env", {"A": 1}),
        ("A=1 vllm serve /m", "env", {"A": 1}),
        ("export P=/a:$LD_LIBRARY_PATH\nvllm serve /m", "env", {"P": "/a:${LD_LIBRARY_PATH}"}),
        ("unset X\nvllm serve /m", "unset", ["X"]),
    ],
)
def test_how_else_it_may_be_written(bring: Bring, script: str, key: str, value: object) -> None:
    found = bring(script)
    assert group(found)[key] == value
    assert told(found) == []


@pytest.mark.parametrize(
    ("script", "list_", "words"),
    [
        ("ulimit -n 65536\n", "not_read", ("x.sh:1", "ulimit", "no place")),
        ("source ./env.sh\n", "not_read", ("x.sh:1", "env.sh", "env_from")),
        ("export A='${B}'\n", "not_read", ("A=${B}", "single quotes")),
        ("export A=$NOWHERE\n", "open", ("A=${NOWHERE}", "not set by the script")),
        ("export A=<your path>\n", "open", ("A=<your path>", "not known")),
        ("export A=$(nproc)\n", "not_read", ("$(nproc)", "prints")),
        ("UNUSED=1\n", "dropped", ("UNUSED=1", "not used")),
        ("export ETCD_X=1\n", "dropped", ("ETCD_X=1", "yrnode's own")),
        ("pkill etcd\n", "dropped", ("pkill etcd", "stops")),
        ("dscli stop --worker_address 10.0.0.1:1\n", "dropped", ("dscli stop", "stops")),
        ("etcdctl user add root\n", "not_read", ("etcdctl user add root", "no place")),
        ("./other.sh\n", "not_read", ("./other.sh", "no place")),
        ("vllm serve /m\n", "open", ("--port", "not known")),
        ("vllm serve ./m --port 1\n", "open", ("./m", "begins at the cluster file")),
        ("taskset -c 0-3 vllm serve /m --port 1\n", "not_read", ("taskset -c 0-3", "not kept")),
        ("A=1 dscli start -w --worker_address 10.0.0.1:1\n", "not_read", ("A=1", "built environment")),
        ("etcd --version\n", "not_read", ("etcd --version", "no place")),
        ("vllm serve /m /n --port 1\n", "not_read", ("/n", "several models")),
    ],
)
def test_what_has_no_place_is_listed(bring: Bring, script: str, list_: str, words: tuple[str, ...]) -> None:
    found = bring(script if "serve" in script else script + SERVE)
    assert about(told(found, list_), *words)


def test_scripts_that_are_sourced_by_a_full_path_are_not_followed_but_named(bring: Bring) -> None:
    found = bring("source /usr/local/Ascend/set_env.sh\n" + SERVE)
    assert data(found)["env_from"] == ["/usr/local/Ascend/set_env.sh"]


def test_a_worker_in_full(bring: Bring) -> None:
    text = (
        "export OTHER=1\nnumactl -N 0 /opt/dscli start -t 600 -d /data -i 0-7 -w --worker_address=10.0.0.1:18482 "
        "--etcd_address 10.0.0.9:2379 --shared_memory_size_mb 1024 --enable-huge-tlb true "
        "--remote_h2d_device_ids 0,1 --cluster_name c --rpc_thread_num 16 --log_dir /logs\n"
    )
    found = bring(SERVE, files={"worker.sh": text})
    assert data(found)["datasystem"] == {
        **{
            "port": 18482,
            "start_timeout": "600s",
            "shared_memory": "1024MB",
            "huge_pages": True,
            "remote_h2d": [0, 1],
        },
        **{"numa": {"cpunodebind": "0", "interleave": "0-7"}, "cluster_name": "c", "args": {"rpc_thread_num": 16}},
    }
    assert data(found)["bin"] == {"dscli": "/opt/dscli"}
    # nobody starts that etcd here
    assert data(found)["etcd"] == {"external": ["http://10.0.0.9:2379"]}
    assert about(told(found, "open"), "etcd at http://10.0.0.9:2379")
    assert about(told(found), "worker.sh:1", "OTHER=1")
    assert about(told(found, "dropped"), "--log_dir /logs")


def test_workers_that_differ(bring: Bring) -> None:
    yr = (HERE / "a3/run_yr.sh").read_text()
    other = yr.replace("10.0.0.1", "10.0.0.2").replace("SHM_SIZE=512000", "SHM_SIZE=1000")
    found = bring(SERVE, files={"a.sh": yr, "b.sh": other})
    assert about(told(found), "b.sh:30", "shared_memory: 1000MB", "a.sh:30")
    assert about(told(found), "b.sh:14", "etcd on 10.0.0.2", "10.0.0.1's")
    assert len(data(found)["etcd"]["nodes"]) == 1


def test_three_members_of_etcd(bring: Bring) -> None:
    names = [f"run_glm5_w4a8_yuanrong_a2_node{n}.sh" for n in (0, 1)]
    files = {name: (HERE / "a2" / name).read_text() for name in names}
    members = ",".join(f"m{n}=http://10.0.0.{n}:2380" for n in (1, 2, 3))
    for n in (1, 2, 3):
        client, peer = f"http://10.0.0.{n}:2379", f"http://10.0.0.{n}:2380"
        files[f"etcd{n}.sh"] = (
            f"etcd --name m{n} --initial-advertise-peer-urls {peer} --advertise-client-urls {client} "
            f"--initial-cluster {members} --initial-cluster-state new -quota-backend-bytes=1000 &\n"
        )
    found = bring(files=files)
    assert data(found)["etcd"] == {"nodes": ["n0", "n1", "n2"], "args": {"quota-backend-bytes": 1000}}
    assert data(found)["nodes"]["n2"] == {"address": "10.0.0.3"}
    assert about(told(found, "open"), "n2: 10.0.0.3", "no vllm serve")


def test_a_fault_between_values_is_open_and_the_file_is_still_there(bring: Bring) -> None:
    times = "--node_timeout_s 60 --node_dead_timeout_s 30"
    found = bring(f"{SERVE}dscli start -w --worker_address 10.0.0.1:1 --etcd_address 10.0.0.1:2 {times}\n")
    assert about(told(found, "open"), "does not pass yet", "node_dead_timeout")
    assert data(found)["datasystem"]["node_dead_timeout"] == "30s"


def test_secrets_are_in_the_file_alone(bring: Bring) -> None:
    found = bring(
        "export HF_TOKEN=$X-s3cret\nAPI_KEY=s3cret\ncurl --api-key s3cret x\n" + SERVE + "ulimit --token s3cret\n"
    )
    lines = [*told(found), *told(found, "dropped"), *told(found, "open")]
    assert len(lines) >= 4
    assert not about(lines, "s3cret")


def test_a_terminal_is_told_nothing_but_text(bring: Bring) -> None:
    found = bring("ulimit \x1b]0;x\x07\n" + SERVE.replace("/m", "'~\x1b[1m'"))
    lines = [*told(found), *told(found, "open")]
    assert about(lines, "ulimit")
    assert about(lines, "does not pass yet", "~")
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("text", ["echo hi\n", "X=1\n", "", "if true; then vllm serve /m; fi\n", "\x01\x02"])
def test_what_starts_nothing_is_no_such_script(bring: Bring, text: str) -> None:
    with pytest.raises(UsageError, match=r"x\.sh: ") as caught:
        bring(files={"x.sh": text})
    assert len(caught.value.lines) == 1


def test_nothing_is_ever_run(bring: Bring, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    trap = f"touch {mark}"
    text = f"A=$({trap})\nB=`{trap}`\n{trap}\n: ${{C:=$({trap})}}\nexport D=<({trap})\nf() {{ {trap}; }}; f\n"
    text += f"vllm serve /m --x $({trap})\n"
    Path("set_env.sh").write_text(f"{trap}\n")
    bring(f". {tmp_path}/set_env.sh\nsource ./set_env.sh\n{text}")
    assert not mark.exists()


def test_what_a_rank_has_from_yrnode_itself() -> None:
    assert set(base(dict.fromkeys(KEPT, "x"), engine=True)) == set(KEPT)


LOOKS = [
    *(
        "1",
        "0.90",
        "007",
        "1e3",
        "true",
        "no",
        "~",
        "null",
        "0x1",
        "-",
        "a: b",
        "#",
        "1_0",
        "é\n",
        ".5",
        "<<x",
        "\x85",
    ),
    *(":1", "a:", "a ,b", "{a", "a}", "*a", "&a", "!a", "%a", "@a", "`a", "? a", "|", ">"),
]
LEAF = st.one_of(st.text(max_size=12), st.sampled_from(LOOKS))
KEY = LEAF.filter(lambda key: key not in ("", "<<"))
NUMBER = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
VALUE = st.recursive(
    st.one_of(LEAF, NUMBER, st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEY, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=150)
@given(st.dictionaries(KEY, LEAF, max_size=4), VALUE)
def test_values_read_back_from_the_text(env: dict[str, str], value: object) -> None:
    written = {"env": env, "groups": {"g": {"args": {"json": {"v": value}}, "extra": value}}}
    got = parse(yaml_text(written, {}).encode(), "c.yaml").data
    assert got["groups"] == written["groups"]
    assert {k: getattr(v, "text", str(v).lower() if isinstance(v, bool) else v) for k, v in got["env"].items()} == env


STARTS = [
    "vllm serve",
    "etcd",
    "dscli start -w",
    "python launch_online_dp.py",
    "python proxy.py --prefiller-hosts",
    "\n",
]
FLAGS = [
    *(
        "--port",
        "--dp-size",
        "--data-parallel-size",
        "--kv-transfer-config",
        "--prefiller-ports",
        "--dp-address",
        "-tp",
    ),
    *("--model", "--headless", "--initial-cluster", "--data-parallel-rank", "--advertise-client-urls", "--x="),
    *("--worker_address", "--served-model-name", "--etcd_address", "--max-model-len"),
]
SOME = [
    *("2", "9999999", "$1", "$(x)", "<IP>", "10.0.0.1", ":1", "a=b", "{}", "http://", "~", '""', "export A="),
    *('\'{"kv_role":', '"kv_both"}\'', "MODEL_PATH=", "YUANRONG_WORKER_PORT=3\n", "MERGED_HOST_IP=10.0.0.3\n"),
    "MERGED_VLLM_PORT=x\n",
]
WORDS = st.lists(st.sampled_from([*STARTS, *FLAGS, *SOME]), min_size=1, max_size=14)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS.map(" ".join), min_size=1, max_size=2))
def test_no_script_is_worth_a_traceback(tmp_path: Path, texts: list[str]) -> None:
    files = [tmp_path / f"{at}.sh" for at in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    try:
        found = imported([os.fspath(file) for file in files])
    except UsageError as error:
        assert len([line for line in error.lines if "\n" not in line]) == 1  # noqa: PT017  either end is good
    else:
        document = parse(found.text.encode(), "c.yaml")
        passes = not about(told(found, "open"), "does not pass yet")
        if passes:
            validate(document, tmp_path)
