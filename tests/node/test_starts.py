"""How long starts took is kept over daemons, for the command line that was started."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.policy.build import record, serve, snapshot, spec, view
from yrnode.components.vllm import loading
from yrnode.model.snapshot import ComponentView
from yrnode.model.state import State
from yrnode.node.starts import NAME, History
from yrnode.process.tail import header


def worker(instance: str, seconds: float | None, *argv: str) -> ComponentView:
    own = replace(spec("worker"), argv=argv or ("worker",))
    return replace(view("worker"), spec=own, instance=instance, ready_seconds=seconds)


def usual(history: History, *views: ComponentView) -> float | None:
    return [history.look(snapshot(v)).components.get("worker") for v in views][-1]


def test_the_median_of_the_last_starts(tmp_path: Path) -> None:
    history = History(tmp_path / NAME)
    assert usual(history, worker("i0", None)) is None, "adopted: nobody has seen its start"
    assert usual(history, worker("i1", 6.0)) == 6.0
    assert usual(history, worker("i1", 6.0), worker("i2", 60.0), worker("i3", 8.0)) == 8.0
    assert usual(history, *(worker(f"j{i}", 7.0) for i in range(5))) == 7.0
    assert len(json.loads((tmp_path / NAME).read_text())["components"]["worker"]["seconds"]) == 5


def test_a_later_daemon_knows_it_and_another_command_line_does_not(tmp_path: Path) -> None:
    assert usual(History(tmp_path / NAME), worker("i1", 6.0)) == 6.0
    assert usual(History(tmp_path / NAME), worker("i1", None)) == 6.0
    assert usual(History(tmp_path / NAME), worker("i2", None, "worker", "--more")) is None
    assert usual(History(tmp_path / NAME), worker("i2", 9.0, "worker", "--more")) == 9.0


def test_a_damaged_file_is_no_file(tmp_path: Path) -> None:
    for text in ("", "{", "[]", '{"components": 1}', '{"components": {"worker": {"digest": "", "seconds": ["x"]}}}'):
        (tmp_path / NAME).write_text(text)
        history = History(tmp_path / NAME)
        assert usual(history, worker("i0", None)) is None
        assert usual(history, worker("i1", 6.0)) == 6.0


def test_a_file_that_cannot_be_written_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / NAME)
    assert usual(history, worker("i1", 6.0), worker("i2", 8.0)) == 7.0


def test_a_group_counts_from_go_and_only_where_that_was_seen(tmp_path: Path) -> None:
    history = History(tmp_path / NAME)
    began = history._began

    def look(n: int = 1, **facts: float | None) -> float | None:
        group = serve(record(n=n), **facts)
        return history.look(replace(snapshot(), groups={"serve": group})).groups.get("serve")

    assert look(learned_at=began - 5, ready_since=began + 90) is None, "the go was before this daemon"
    assert look(n=2, learned_at=began + 5, ready_since=None) is None
    assert look(n=2, learned_at=began + 5, ready_since=began + 95) == 90.0
    assert look(n=2, learned_at=began + 5, ready_since=began + 200) == 90.0, "one life is one start"


BAR = "(EngineCore_DP0 pid=7) Loading safetensors checkpoint shards:  33% Completed | 1/3 [00:00<00:00,  5.71it/s]"


def test_what_a_rank_says_that_it_loads(tmp_path: Path) -> None:
    assert loading([]) == ""
    assert loading(["INFO starting", BAR, "x"]) == "loading safetensors checkpoint shards: 33 % (1 of 3)"
    assert loading([BAR, "INFO Loading weights took 3.20 seconds"]) == "the weights are loaded; it prepares to serve"
    assert loading(["Loading 100% Completed", "shards: 5% Completed | a/b "]) == ""


def test_it_is_read_of_ranks_that_start_and_of_their_own_instance(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    rank = view("rank/serve/0", State.STARTING, instance="i2")
    rank = replace(rank, spec=replace(rank.spec, log=log))
    log.write_bytes(header("rank/serve/0", "i1", 1) + BAR.encode() + b"\n" + header("rank/serve/0", "i2", 2))
    history = History(tmp_path / NAME)
    assert history.look(snapshot(rank)).doing == {}
    with log.open("a") as f:
        f.write(f"{BAR}\n")
    assert history.look(snapshot(rank)).doing == {rank.name: "loading safetensors checkpoint shards: 33 % (1 of 3)"}
    assert history.look(snapshot(replace(rank, state=State.READY))).doing == {}
