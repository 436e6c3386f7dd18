"""The stand-in alone: its knobs, its faults, and limits that would take a real vLLM minutes to reach."""

import json
import os
import signal
import time

import psutil
import pytest

FAST = ["--standin-load-time", 0]
LOAD = "--enable-server-load-tracking"


def test_a_rank_is_small_and_quickly_ready(lab):
    start = time.monotonic()
    server = lab.start(*FAST, "--tensor-parallel-size", 2).ready()
    assert time.monotonic() - start < 5  # an idle machine takes 0.5 s
    for pid, comm in server.members().items():
        assert psutil.Process(pid).memory_info().rss < (64 << 20 if comm == "vllm" else 32 << 20), comm
    titles = sorted(comm for comm in server.members().values())
    assert titles == ["VLLM::EngineCor", "VLLM::Worker_TP", "VLLM::Worker_TP", "vllm"]
    assert server.serves()


def test_it_keeps_to_its_directory_and_its_host(lab, tmp_path):
    before = set(os.listdir(tmp_path))
    server = lab.start(*FAST, cwd="/", host="127.0.0.3", env={"TMPDIR": str(tmp_path)}).ready()
    assert server.serves()
    listening = {c.laddr.ip for c in psutil.Process(server.pid).net_connections() if c.status == "LISTEN"}
    assert listening == {"127.0.0.3"}
    server.proc.terminate()
    assert server.gone(5) == 0
    assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--kv-transfer-config", "{broken"], "cannot be converted"),
        (["--data-parallel-size", 2, "--data-parallel-rank", 2], "data_parallel_rank must be in range"),
        (["--port"], "expected one argument"),
    ],
)
def test_usage_errors(lab, flags, message):
    server = lab.start(*flags)
    assert server.gone(5) == 2
    assert message in server.text()


def test_the_flags_of_the_guides_are_accepted(lab):
    flags = (
        "--seed 1024 --max_model_len 133K --quantization ascend --trust-remote-code --no-enable-prefix-caching "
        "--gpu-memory-utilization 0.92 --enable-expert-parallel --enable-chunked-prefill --async-scheduling "
        "--tool-call-parser glm47 --reasoning-parser glm45 --enable-auto-tool-choice --enforce-eager "
        "--enable-prompt-tokens-details --tokenizer x --speculative-config {} --compilation-config={} "
        "--additional-config {}"
    )
    server = lab.start(*FAST, *flags.split()).ready()
    (model,) = json.loads(server.get("/v1/models")[1])["data"]
    assert model["max_model_len"] == 133 * 1024
    server.complete([1] * 64)
    assert server.metric("vllm:prefix_cache_queries_total") == 0


def test_a_socket_path_that_is_too_long(lab, tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    server = lab.start(*FAST, env={"VLLM_RPC_BASE_PATH": str(deep)})
    assert server.gone(5) == 1
    assert "is longer than 107 characters" in server.text()
    assert not server.mapped()


def test_a_prefix_in_the_path_and_a_model_without_completions(lab):
    server = lab.start(*FAST, "--root-path", "/engine/one", "--runner", "pooling").ready()
    assert server.get("/engine/one/health")[0] == 200
    status, answer = server.complete()
    assert status == 400
    assert "does not support" in answer["error"]["message"]


def test_the_key_from_the_environment(lab):
    server = lab.start(*FAST, env={"VLLM_API_KEY": "k"}).ready()
    assert server.complete()[0] == 401
    assert server.complete(headers={"Authorization": "Bearer k"})[0] == 200


def test_a_long_prefill_moves_the_cache_usage_and_no_token_counter(lab, tools):
    flags = ["--max-model-len", 8192, "--max-num-batched-tokens", 256, "--standin-prefill-rate", 2000]
    server = lab.start(*FAST, LOAD, *flags).ready()
    call = tools.Background(lambda: server.complete([5] * 4096, timeout=30))
    usage, tokens, used = set(), set(), psutil.Process(server.worker()).cpu_times().user
    while not call.done():
        usage.add(server.metric("vllm:kv_cache_usage_perc"))
        if not call.done():
            # both of one moment: the prompt may end between two pages
            page = server.get("/metrics")[1]
            both = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
            tokens.add(tuple(server.metric(name, page=page) for name in both))
            tokens.add((server.metric("vllm:iteration_tokens_total_count", page=page), 0))
        time.sleep(0.02)
    assert call.result()[0] == 200
    assert len(usage) > 8  # 16 chunks
    assert {(0.0, 0.0)} <= tokens <= {(0.0, 0.0), (4096.0, 1.0), (1.0, 0.0)}
    assert server.metric("vllm:prompt_tokens_total") == 4096
    assert psutil.Process(server.worker()).cpu_times().user > used


def test_requests_wait_for_seats(lab, tools):
    server = lab.start(*FAST, "--max-num-seqs", 1, "--standin-token-time", 0.01).ready()
    calls = [tools.Background(lambda: server.complete(tools.unique(), max_tokens=50)) for _ in range(3)]
    tools.wait_for(lambda: server.metric("vllm:num_requests_waiting") == 2, 5)
    assert server.metric("vllm:num_requests_running") == 1
    assert [call.result()[0] for call in calls] == [200] * 3
    assert server.metric("vllm:kv_cache_usage_perc") == 0


def test_a_reasoning_parser_leaves_a_short_answer_without_content(lab):
    server = lab.start(*FAST, "--reasoning-parser", "glm45").ready()
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    status, text = server.request("POST", "/v1/chat/completions", body)
    answer = json.loads(text)
    message = answer["choices"][0]["message"]
    assert (status, message["content"], bool(message["reasoning_content"])) == (200, None, True)
    assert answer["usage"]["completion_tokens"] == 2
    assert answer["choices"][0]["finish_reason"] == "length"


def test_one_stuck_request_while_others_are_answered(lab, tools):
    server = lab.start(*FAST, LOAD).ready()
    call = tools.Background(lambda: server.complete("say [standin:stuck] please", timeout=1.5))
    tools.wait_for(lambda: server.metric("vllm:num_requests_running") == 1, 5)
    assert server.load() == 1
    assert server.serves()
    assert server.metric("vllm:num_requests_running") == 1
    with pytest.raises(TimeoutError):
        call.result()
    tools.wait_for(lambda: server.metric("vllm:num_requests_running") == 0, 5)
    assert server.metric("vllm:kv_cache_usage_perc") == 0


def test_a_busy_loop_burns_cpu_and_looks_healthy(lab, tools):
    server = lab.start(*FAST, LOAD).ready()
    engine = psutil.Process(server.engine())
    os.kill(engine.pid, signal.SIGUSR2)
    call = tools.Background(lambda: server.complete(tools.unique(), timeout=30))
    tools.wait_for(lambda: server.load() == 1, 5)
    before = engine.cpu_times().user
    tools.wait_for(lambda: engine.cpu_times().user > before + 0.2, 10, "burnt CPU")
    assert server.get("/health")[0] == 200
    assert not call.done()
    assert tools.stat(engine.pid)[3] == "R"
    os.kill(engine.pid, signal.SIGUSR2)
    assert call.result()[0] == 200


def test_after_a_lost_term_the_start_goes_on(lab, tools):
    server = lab.start("--standin-load-time", 0.7)
    tools.wait_for(lambda: "VLLM::EngineCor" in server.members().values(), 5)
    server.proc.terminate()
    assert server.ready().serves()
    server.proc.terminate()
    assert server.gone(5) == 0


def test_a_killed_session_leaves_semaphores_too(lab):
    server = lab.start(*FAST).ready()
    os.killpg(server.pid, signal.SIGKILL)
    server.gone(5)
    assert server.leftovers() == server.shm
    assert sorted({path[9:13] for path in server.shm}) == ["psm_", "sem."]


def test_a_client_without_an_answer_can_hold_up_the_end(lab, tools):
    server = lab.start(*FAST, LOAD, "--standin-hang-on-term", "--standin-token-time", 0.02).ready()
    call = server.in_flight(timeout=3)
    server.proc.terminate()
    tools.wait_for(lambda: set(server.members().values()) == {"vllm"}, 5)
    assert not server.listening()
    with pytest.raises(TimeoutError):
        call.result()
    assert server.gone(5) == 0


def test_a_busy_loop_does_not_stop_an_end(lab):
    server = lab.start(*FAST).ready()
    os.kill(server.engine(), signal.SIGUSR2)
    server.proc.terminate()
    assert server.gone(5) == 0


def test_term_to_the_whole_session_drains_too(lab, tools):
    server = lab.start(*FAST, LOAD, "--shutdown-timeout", 10, "--standin-token-time", 0.005).ready()
    call = tools.Background(lambda: server.complete(tools.unique(), max_tokens=100, ignore_eos=True))
    tools.wait_for(lambda: server.load() == 1, 5)
    os.killpg(server.pid, signal.SIGTERM)
    assert call.result()[1]["usage"]["completion_tokens"] == 100
    assert server.gone(5) == 0
    assert not server.leftovers()


def test_a_frozen_engine_ends_after_the_shutdown_timeout(lab, tools):
    server = lab.start(*FAST, LOAD, "--shutdown-timeout", 1).ready()
    os.kill(server.engine(), signal.SIGSTOP)
    tools.Background(lambda: server.complete(tools.unique()))
    tools.wait_for(lambda: server.load() == 1, 5)
    start = time.monotonic()
    server.proc.terminate()
    assert server.gone(5) == 0
    assert time.monotonic() - start > 1


def test_the_execution_timeout_ends_a_hung_worker(lab, tools):
    server = lab.start(*FAST, env={"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "0.5"}).ready()
    worker = server.worker()
    os.kill(worker, signal.SIGSTOP)
    assert server.complete(tools.unique())[0] == 500
    assert server.proc.wait(5) == 0
    os.kill(worker, signal.SIGCONT)
    server.gone(5)


# groups


def test_a_rank_alone_gives_up_after_the_handshake_timeout(lab, tools):
    flags = ["--data-parallel-size", 2, "--data-parallel-rank", 1, "--data-parallel-rpc-port", tools.free_port()]
    server = lab.start(*flags, "--standin-handshake-timeout", 0.5)
    assert server.gone(5) == 1
    assert "Did not receive response from front-end process within 5 minutes" in server.text()
    assert "Engine core initialization failed. See root cause above." in server.text()


def test_rank_0_alone_waits_without_a_word(lab, tools):
    flags = ["--data-parallel-size", 2, "--data-parallel-rank", 0, "--data-parallel-rpc-port", tools.free_port()]
    server = lab.start(*flags, *FAST, "--standin-handshake-timeout", 0.2)
    tools.wait_for(lambda: "Started DP Coordinator process" in server.text(), 5)
    time.sleep(1)  # a stay is what is to be shown
    assert server.proc.poll() is None
    assert not server.listening()
    assert "ERROR" not in server.text()


def test_a_late_single_rank_never_joins(lab, tools):
    rpc_port = tools.free_port()
    ranks = lab.group(rpc_port=rpc_port, knobs=FAST)
    for r in ranks:
        r.ready()
    os.killpg(ranks[1].pid, signal.SIGKILL)
    flags = ["--data-parallel-size", 2, "--data-parallel-rank", 1, "--data-parallel-rpc-port", rpc_port]
    late = lab.start(*flags, *FAST, "--standin-handshake-timeout", 0.5)
    assert late.gone(5) == 1
    assert ranks[0].get("/health")[0] == 200


def test_ranks_that_differ_do_not_start(lab, tools):
    rpc_port = tools.free_port()
    flags = ["--data-parallel-size", 2, "--data-parallel-rpc-port", rpc_port, *FAST]
    zero = lab.start(*flags, "--data-parallel-rank", 0)
    one = lab.start(*flags, "--data-parallel-rank", 1, "--tensor-parallel-size", 2)
    assert zero.gone(5) == 1
    assert "Configuration mismatch detected for engine 1" in zero.text()
    assert one.proc.poll() is None  # it waits for its handshake


def test_a_rank_that_dies_while_loading_fails_the_others(lab, tools):
    ranks = lab.group(knobs=["--standin-load-time", 0.7])
    tools.wait_for(lambda: all(any("Worker" in c for c in r.members().values()) for r in ranks), 5)
    os.killpg(ranks[1].pid, signal.SIGKILL)
    assert ranks[0].gone(5) == 1


def test_a_busy_group_sees_a_death_at_once(lab, tools):
    ranks = lab.group(size=3, knobs=[*FAST, "--standin-token-time", 0.01])
    for r in ranks:
        r.ready()
    calls = [tools.Background(lambda r=r: r.complete(max_tokens=400, ignore_eos=True)) for r in ranks[:2]]
    tools.wait_for(lambda: all(r.load() == 1 for r in ranks[:2]), 5)
    os.killpg(ranks[2].pid, signal.SIGKILL)
    assert [call.result(5)[0] for call in calls] == [500, 500]
    assert [r.gone(5) for r in ranks[:2]] == [0, 0]


def test_with_a_collective_timeout_the_innocent_rank_ends(lab, tools):
    ranks = lab.group(flags=["--cpu-distributed-timeout-seconds", 0.5], knobs=FAST)
    for r in ranks:
        r.ready()
    guilty = ranks[1].engine()
    os.kill(guilty, signal.SIGSTOP)
    assert ranks[0].complete(tools.unique())[0] == 500
    assert ranks[0].gone(5) == 0
    assert ranks[1].get("/health")[0] == 200
    os.kill(guilty, signal.SIGCONT)
    assert ranks[1].complete(tools.unique())[0] == 500
    assert ranks[1].gone(5) == 0


def test_a_frozen_worker_of_an_idle_rank_hangs_the_group(lab, tools):
    ranks = lab.group(knobs=FAST)
    for r in ranks:
        r.ready()
    worker = ranks[1].worker()
    os.kill(worker, signal.SIGSTOP)
    assert ranks[0].hangs()
    os.kill(worker, signal.SIGCONT)
    tools.wait_for(ranks[0].serves, 5)


def test_several_engines_behind_one_server(lab, tools):
    server = lab.start(*FAST, "--data-parallel-size", 3, LOAD).ready()
    calls = [tools.Background(server.serves) for _ in range(9)]
    assert all(call.result() for call in calls)
    for n in range(3):
        assert server.metric("vllm:generation_tokens_total", engine=str(n)) == 3
    assert sorted(server.members().values()).count("VLLM::EngineCor") == 3
    os.kill(next(pid for pid, comm in server.members().items() if comm == "VLLM::Worker_DP"), signal.SIGKILL)
    assert server.gone(5) == 0


def test_hybrid_balancing_has_a_server_on_each_node(lab, tools):
    both = ["--data-parallel-size", 2, "--data-parallel-size-local", 1, "--data-parallel-hybrid-lb", *FAST]
    both += ["--data-parallel-rpc-port", tools.free_port()]
    first = lab.start(*both)
    second = lab.start(*both, "--data-parallel-start-rank", 1).ready()
    assert first.ready().serves()
    assert second.serves()
    assert second.metric("vllm:generation_tokens_total", engine="1") == 1
