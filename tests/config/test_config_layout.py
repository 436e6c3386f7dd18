from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yrnode.config import layout
from yrnode.config.cluster import Cluster
from yrnode.config.group import Group
from yrnode.config.layout import Server
from yrnode.config.load import load
from yrnode.config.ports import node_ports
from yrnode.model.routing import Role, Route

SHIPPED = Path(__file__).resolve().parents[2] / "config"
TLS = {"ssl-certfile": "/c", "root-path": "/x"}


def group(**values: object) -> Group:
    return Group.model_validate({"model": "m", **values})


@pytest.fixture(scope="module")
def pair() -> Cluster:
    return load(SHIPPED / "glm5-w8a8-a2-pd-8node.yaml")


def test_ranks_are_numbered_in_the_order_of_the_file(pair: Cluster) -> None:
    decode = pair.groups["decode"]
    assert layout.data_parallel_size(decode) == 8
    assert [layout.first_rank(decode, node) for node in ("d0", "d1", "d2", "d3")] == [0, 2, 4, 6]
    assert layout.servers("decode", decode, "d1") == (
        Server("decode", "d1", 2, 1, 0, 6600, (0, 1, 2, 3)),
        Server("decode", "d1", 3, 1, 1, 6601, (4, 5, 6, 7)),
    )
    assert [server.name for server in layout.servers("decode", decode, "d3")] == ["rank/decode/6", "rank/decode/7"]
    assert layout.head_node(decode) == "d0"
    assert layout.head_address(pair, decode) == "10.0.0.5"


def test_a_headless_group_has_one_server_per_node_and_one_port() -> None:
    two = group(ranks={"n1": 2, "n0": 1}, mode="headless", tensor_parallel=2, port=1025)
    assert layout.servers("g", two) == (
        Server("g", "n1", 0, 2, 0, 1025, (0, 1, 2, 3)),
        Server("g", "n0", 2, 1, 0, None, (0, 1)),
    )


def test_a_node_with_no_rank_has_no_part() -> None:
    two = group(ranks={"n0": 0, "n1": 1})
    assert layout.group_nodes(two) == ("n1",)
    assert layout.head_node(two) == "n1"
    assert layout.servers("g", two, "n0") == ()


def test_devices_are_the_written_ones_or_count_from_zero() -> None:
    two = group(ranks={"n0": 2, "n1": 1}, tensor_parallel=2, devices={"n0": [7, 6, 5, 4]})
    assert [server.devices for server in layout.servers("g", two)] == [(7, 6), (5, 4), (0, 1)]


def test_pipeline_and_context_parallel_widen_a_rank() -> None:
    wide = group(
        ranks={"n0": 1}, tensor_parallel=2, args={"pipeline_parallel_size": 3, "prefill-context-parallel-size": 2}
    )
    assert layout.devices_per_rank(wide) == 12


def test_etcd_is_on_the_first_node_when_left_out() -> None:
    demo = load(SHIPPED / "glm5-w4a8-a3-single.yaml")
    assert layout.etcd_nodes(demo) == ("n0",)
    assert layout.etcd_endpoints(demo) == ("http://10.0.0.1:2379",)
    assert layout.worker_address(demo, "n0") == "10.0.0.1:18481"


def test_etcd_endpoints_speak_tls_where_it_is_set_and_may_be_external(pair: Cluster) -> None:
    tls = pair.etcd.model_validate({"nodes": ["p0", "p1", "d0"], "tls": {"ca": "/a", "cert": "/b", "key": "/c"}})
    urls = layout.etcd_endpoints(pair.model_copy(update={"etcd": tls}))
    assert urls == ("https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.5:2379")
    other = pair.model_copy(update={"etcd": pair.etcd.model_validate({"external": ["http://h:1"]})})
    assert (layout.etcd_nodes(other), layout.etcd_endpoints(other)) == ((), ("http://h:1",))


def test_a_command_to_etcd_names_what_etcd_asks_for(pair: Cluster) -> None:
    def words(**etcd: object) -> str:
        return layout.etcdctl(pair.model_copy(update={"etcd": pair.etcd.model_validate(etcd)}))

    assert words(external=["http://h:1", "http://i:2"]) == "etcdctl --endpoints=http://h:1,http://i:2"
    tls = {"ca": "/a b", "cert": "/c", "key": "/k"}
    assert words(external=["https://h:1"], tls=tls, auth={"user": "u", "password_file": "/p"}) == (
        "etcdctl --endpoints=https://h:1 '--cacert=/a b' --cert=/c --key=/k --user=root"
    )


def test_what_is_behind_the_router(pair: Cluster) -> None:
    assert layout.router_groups(pair) == ("prefill", "decode")
    assert pair.router is not None
    assert layout.router_health(pair.router) == "/healthcheck"
    single = load(SHIPPED / "glm5-w4a8-a3-single.yaml")
    assert layout.router_groups(single) == ()
    router = pair.router.model_validate({"node": "n0", "kind": "vllm-router"})
    assert layout.router_groups(single.model_copy(update={"router": router})) == ("serve",)
    assert layout.router_health(router) == "/health"


def test_every_server_behind_the_router_has_its_role_and_url(pair: Cluster) -> None:
    found = layout.routes(pair)
    roles = [(r.group, r.role) for r in found]
    assert roles == [("prefill", Role.PREFILL)] * 4 + [("decode", Role.DECODE)] * 8
    first, last = found[0], found[-1]
    assert (first.rank, first.node, first.url) == ("rank/prefill/0", "p0", "http://10.0.0.1:6600")
    assert (last.rank, last.node, last.url) == ("rank/decode/7", "d3", "http://10.0.0.8:6601")
    assert last.nodes == ("d0", "d1", "d2", "d3")
    assert layout.router_url(pair) == "http://10.0.0.1:8000"


def test_behind_the_router_a_headless_group_is_its_head() -> None:
    one = Cluster.model_validate(
        {
            "cluster": "c",
            "nodes": {"a": {"address": "10.0.0.1"}, "b": {"address": "10.0.0.2"}},
            "groups": {"g": {"model": "m", "ranks": {"b": 2, "a": 2}, "mode": "headless", "args": TLS}},
            "router": {"node": "a", "kind": "vllm-router"},
        }
    )
    nodes = ("b", "a")
    assert layout.routes(one) == (Route("rank/g/0", "g", "b", Role.REGULAR, "https://10.0.0.2:6600/x", nodes),)
    assert layout.routes(one.model_copy(update={"router": None})) == ()
    assert layout.router_url(one.model_copy(update={"router": None})) == ""


def test_a_node_may_have_its_own_directories_and_interface() -> None:
    demo = load(SHIPPED / "local-demo.yaml")
    assert layout.places(demo, "n0").etcd_data_dir == SHIPPED / "state" / "etcd"
    node = demo.nodes["n0"].model_validate(
        {
            "address": "127.0.0.2",
            "state_dir": "/s",
            "run_dir": "/r",
            "log_dir": "/l",
            "api": {"listen": "127.0.0.2:1"},
        }
    )
    other = demo.model_copy(update={"nodes": {"n0": demo.nodes["n0"], "n1": node}})
    assert layout.places(other, "n1") == layout.Places(Path("/s"), Path("/r"), Path("/l"), Path("/s/etcd"))
    assert layout.api_of(other, "n1").listen == "127.0.0.2:1"
    assert layout.api_of(other, "n0").listen == demo.api.listen


def test_fixed_ports_of_a_node_include_mooncakes(pair: Cluster) -> None:
    uses = {use.what: (use.first, use.last) for use in node_ports(pair, "d1")}
    assert uses == {
        "the datasystem worker": (18481, 18481),
        "group decode": (6600, 6601),
        "Mooncake of decode": (30108, 30115),
        "HCCL of decode": (60000, 60007),
        "yrnode's HTTP interface": (8470, 8470),
    }
    assert {use.what for use in node_ports(pair, "p0")} >= {
        "the router",
        "etcd's client port",
        "the rpc port of prefill",
    }


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any),
    width=st.integers(1, 4),
    mode=st.sampled_from(["external", "headless"]),
)
def test_ranks_devices_and_ports_are_dealt_out_once_and_without_gaps(
    counts: list[int], width: int, mode: str
) -> None:
    some = group(ranks={f"n{at}": n for at, n in enumerate(counts)}, tensor_parallel=width, mode=mode, port=7000)
    servers = layout.servers("g", some)
    numbers = [server.number + at for server in servers for at in range(server.count)]
    assert numbers == list(range(layout.data_parallel_size(some))) == list(range(sum(counts)))
    assert len({server.name for server in servers}) == len(servers)
    for node in some.ranks:
        here = layout.servers("g", some, node)
        devices = [device for server in here for device in server.devices]
        assert devices == list(range(some.ranks[node] * width))
        ports = [server.port for server in here if server.port is not None]
        assert ports == list(range(7000, 7000 + len(ports)))
        assert [server.local for server in here] == list(range(len(here)))
    assert sum(server.port is not None for server in servers) == (sum(counts) if mode == "external" else 1)
    assert servers[0].node == layout.head_node(some)
