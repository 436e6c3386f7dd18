"""deploy_env.sh: the variables of vllm_yuanrong_cli.sh, as the commands that it would give."""

from collections.abc import Iterator

from yrnode.config.scripts.bash import Command, Script
from yrnode.config.scripts.notes import Notes, add

MERGED, SEPARATED = "merged", "separated"
_MARKS = ("YUANRONG_WORKER_PORT", "MODEL_PATH", "SHARED_MEMORY_MB")
_COMMON = (
    *("YUANRONG_WORKER_PORT", "ETCD_CLIENT_PORT", "MODEL_PATH", "PROXY_SERVER_SCRIPT", "LOG_PATH", "VLLM_LOG_FILE"),
    *("VISIBLE_DEVICES", "TENSOR_PARALLEL_SIZE", "GPU_MEMORY_UTILIZATION", "MAX_NUM_BATCHED_TOKENS"),
    "SHARED_MEMORY_MB",
)
_ROLES = ("MERGED_", "PRIMARY_", "SECONDARY_", "PROXY_")
_LOGS = ("LOG_PATH", "VLLM_LOG_FILE")


def is_deploy_env(script: Script) -> bool:
    """Whether a script sets these variables."""
    return sum(name in script.variables for name in _MARKS) >= 2


def deployments(script: Script) -> tuple[str, ...]:
    """Which of the two the file describes, the one to take first."""
    has = script.variables
    first, second = has.get("PRIMARY_HOST_IP"), has.get("SECONDARY_HOST_IP")
    found = (SEPARATED,) if first and second else ()
    return (*found, MERGED) if has.get("MERGED_HOST_IP") else found


def commands(script: Script, deployment: str, notes: Notes) -> list[Command]:
    """What `vllm_yuanrong_cli.sh start` would run on the nodes of a deployment."""
    for name in _LOGS:
        if name in script.variables:
            why = "yrnode keeps the output in log_dir, and the worker's own logs in state_dir"
            add(notes.dropped, script.file, script.lines[name], f"{name}={script.variables[name]}", why)
    roles = ("MERGED",) if deployment == MERGED else ("PRIMARY", "SECONDARY")
    return [command for role in roles for command in _role(script, role, notes)]


def _role(script: Script, role: str, notes: Notes) -> Iterator[Command]:
    own = script.variables

    def value(name: str, default: str = "") -> str:
        return own.get(f"{role}_{name}", default)

    line = script.lines.get(f"{role}_HOST_IP", 1)
    env = {
        name: own[name]
        for name in script.exported
        if name in own and name not in _COMMON and not name.startswith(_ROLES)
    }
    host, worker = value("HOST_IP"), own.get("YUANRONG_WORKER_PORT", "")
    # the other node uses the first one's etcd
    etcd = own.get("PRIMARY_HOST_IP", "") if role == "SECONDARY" else value("ETCD_IP", host)
    port = own.get("ETCD_CLIENT_PORT", "2379")
    if role != "SECONDARY":
        peer = str(int(port) + 1) if port.isdecimal() else ""
        urls = f"http://{etcd}:{port}", f"http://{etcd}:{peer}"
        yield _command(line, {}, "etcd", "--advertise-client-urls", urls[0], "--initial-advertise-peer-urls", urls[1])
    yield _command(
        line, {}, "dscli", "start", "-w", "--worker_address", f"{host}:{worker}", "--etcd_address", f"{etcd}:{port}",
        *_optional(own, "--shared_memory_size_mb", "SHARED_MEMORY_MB"), "--enable_worker_worker_batch_get", "True",
    )  # fmt: skip
    env |= {"HCCL_IF_IP": host, "DS_WORKER_ADDR": f"{host}:{worker}", **_devices(script, notes)}
    yield _command(
        line, env, "vllm", "serve", own.get("MODEL_PATH", ""), "--host", host, "--port", value("VLLM_PORT"),
        "--trust-remote-code",
        *_unless_extra(script, role, "--max-num-batched-tokens", "MAX_NUM_BATCHED_TOKENS", notes),
        *_unless_extra(script, role, "--gpu-memory-utilization", "GPU_MEMORY_UTILIZATION", notes),
        *_unless_extra(script, role, "--tensor-parallel-size", "TENSOR_PARALLEL_SIZE", notes),
        "--kv-transfer-config", value("KV_CONFIG"),
        *(word for word in _extra(script, role) if word != "--trust-remote-code"),
    )  # fmt: skip
    if role == "PRIMARY":
        words = [w for kind in ("PREFILL", "DECODE") for w in _members(own, kind)]
        yield _command(
            line,
            {},
            "python",
            own.get("PROXY_SERVER_SCRIPT", ""),
            "--host",
            host,
            "--port",
            value("PROXY_PORT"),
            *words,
        )


def _command(line: int, env: dict[str, str], *words: str) -> Command:
    return Command(line, " ".join(words), words, env, (), ())


def _extra(script: Script, role: str) -> list[str]:
    """The array, as the script flattens it: without quotes, so that blanks split it once more."""
    name = f"{role}_VLLM_EXTRA_ARGS"
    given = script.arrays.get(name) or tuple(filter(None, [script.variables.get(name)]))
    return [word for text in given for word in text.split()]


def _optional(own: dict[str, str], flag: str, name: str) -> tuple[str, ...]:
    return (flag, own[name]) if own.get(name) else ()


def _unless_extra(script: Script, role: str, flag: str, name: str, notes: Notes) -> tuple[str, ...]:
    """A common value, unless the role's own flags have it again, which stand later and win."""
    if flag not in _extra(script, role):
        return _optional(script.variables, flag, name)
    if name in script.variables:
        text = f"{name}={script.variables[name]}"
        add(notes.dropped, script.file, script.lines[name], text, f"{role}_VLLM_EXTRA_ARGS has {flag} too, and wins")
    return ()


def _devices(script: Script, notes: Notes) -> dict[str, str]:
    devices = script.variables.get("VISIBLE_DEVICES", "")
    width = script.variables.get("TENSOR_PARALLEL_SIZE", "1")
    if devices and devices.count(",") + 1 == (int(width) if width.isdecimal() else 0):
        return {"ASCEND_RT_VISIBLE_DEVICES": devices}
    if devices:
        why = "vllm_yuanrong_cli.sh passes it on under a misspelled name, and it does not fit TENSOR_PARALLEL_SIZE"
        add(notes.dropped, script.file, script.lines["VISIBLE_DEVICES"], f"VISIBLE_DEVICES={devices}", why)
    return {}


def _members(own: dict[str, str], kind: str) -> tuple[str, ...]:
    word = {"PREFILL": "prefiller", "DECODE": "decoder"}[kind]
    other = {"PREFILL": "PRIMARY", "DECODE": "SECONDARY"}[kind]
    host = own.get(f"PROXY_{kind}_HOST") or own.get(f"{other}_HOST_IP", "")
    port = own.get(f"PROXY_{kind}_PORT") or own.get(f"{other}_VLLM_PORT", "")
    return f"--{word}-hosts", host, f"--{word}-ports", port
