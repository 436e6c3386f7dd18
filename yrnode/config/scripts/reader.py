"""Script files → what they start: servers, etcd, workers, proxies. All files together describe one cluster."""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from yrnode.config.scripts import deploy_env, launch, proxy, store, vllm
from yrnode.config.scripts.bash import MAX_BYTES, Command, Script, read
from yrnode.config.scripts.flags import unwrapped
from yrnode.config.scripts.notes import Notes, add
from yrnode.config.scripts.values import known, needs_positions, shown
from yrnode.model.errors import UsageError

WHICH = (
    "give the guides' scripts: run_yr.sh, run_etcd.sh, run_yr_worker.sh, a script with vllm serve, "
    "run_dp_template.sh with server.sh, proxy.sh, or deploy_env.sh"
)
_OWN_RULES = "yrnode stops what it has started, by its own rules"
_PROOF = "yrnode waits for proof that a component works, and looks again and again"
_NO_KEY = "etcd and the worker get a built environment; the cluster file has no key for it"
_DROPPED = {
    **dict.fromkeys(("echo", "printf"), "it only shows a message"),
    **dict.fromkeys(("sleep", "wait"), _PROOF),
    **dict.fromkeys(("rm", "mkdir"), "yrnode makes its own directories, and removes what it proves to be left over"),
    **dict.fromkeys(("kill", "pkill", "killall"), _OWN_RULES),
    **dict.fromkeys(("cd", "pushd", "popd"), "each component has a directory of its own in state_dir"),
    **dict.fromkeys(("set", "shopt", "true", ":", "exit", "return"), "it is about the shell alone"),
    **dict.fromkeys(("curl", "nc"), _PROOF),
}
_ASKS = ("put", "get", "del", "endpoint", "version", "member")


@dataclass
class Template:
    """run_dp_template.sh: `vllm serve` with parameters."""

    file: str
    text: str
    server: vllm.Server
    """As it stands, with its parameters open."""
    variables: dict[str, str]


@dataclass
class Found:
    """What the files start."""

    servers: list[vllm.Server] = field(default_factory=list)
    templates: list[Template] = field(default_factory=list)
    launches: list[launch.Launch] = field(default_factory=list)
    etcds: list[store.Etcd] = field(default_factory=list)
    workers: list[store.Worker] = field(default_factory=list)
    proxies: list[proxy.Proxy] = field(default_factory=list)


def content(path: str) -> str:
    """The text of a script. Raises UsageError where it cannot be read."""
    try:
        kind = os.stat(path).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            # a pipe would be waited for, for ever
            raise UsageError(f"{path}: no regular file; {WHICH}")
        with open(path, "rb") as stream:
            found = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}; {WHICH}") from None
    if len(found) > MAX_BYTES:
        raise UsageError(f"{path}: it has more than {MAX_BYTES // 1024} KB; is it such a script? {WHICH}")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: its text is not UTF-8; save it as UTF-8") from None


def find(files: Sequence[str], notes: Notes, deployment: str | None = None) -> Found:
    """What the files start. Raises UsageError for a file that starts nothing that yrnode knows."""
    found = Found()
    for file in dict.fromkeys(os.path.normpath(file) for file in files):
        _Reader(file, content(file), found, notes, deployment).read()
    return found


class _Reader:
    """One file's commands, each to the room of its program."""

    def __init__(self, file: str, text: str, found: Found, notes: Notes, deployment: str | None) -> None:
        self.file, self.text, self.found, self.notes, self.deployment = file, text, found, notes, deployment

    def read(self) -> None:
        script = read(self.text, self.file, self.notes)
        commands = script.commands
        before = self.count()
        engine = False
        if deploy_env.is_deploy_env(script):
            commands = [*commands, *self.deployed(script)]
            engine = True
        for command in commands:
            engine = self.command(script, command) or engine
        if self.count() == before:
            raise UsageError(f"{self.file}: nothing in it starts etcd, a worker, vLLM or the proxy; {WHICH}")
        self.sources(script, engine)
        self.leftovers(script, engine)

    def count(self) -> int:
        return sum(len(getattr(self.found, part.name)) for part in fields(self.found))

    def deployed(self, script: Script) -> list[Command]:
        known_ones = deploy_env.deployments(script)
        if not known_ones:
            raise UsageError(
                f"{self.file}: no node has an address; set MERGED_HOST_IP, or PRIMARY_ and SECONDARY_HOST_IP"
            )
        taken = self.deployment or known_ones[0]
        if taken not in known_ones:
            raise UsageError(f"{self.file}: it describes no {taken} deployment, but {known_ones[0]}")
        if len(known_ones) > 1 and self.deployment is None:
            text = f"--deployment {known_ones[1]}"
            why = f"it describes two deployments; {taken} is taken, and this takes the other"
            add(self.notes.open, self.file, 0, text, why)
        return deploy_env.commands(script, taken, self.notes)

    def command(self, script: Script, command: Command) -> bool:
        """Whether it starts an engine, which gets what the script exports."""
        own, words = unwrapped(command.words)
        if own:
            command = replace(command, env={**command.env, **own}, own=(*command.own, *own))
        words = self.engine_words(command, words)
        if not words or not known(words[0]):
            self.unknown(command)
            return False
        engine = True
        if vllm.is_serve(words):
            self.serve(script, command, words)
        elif launch.is_launch(words):
            line = launch.launch(script, command, words, self.notes)
            self.found.launches += [line] if line is not None else []
        elif proxy.is_proxy(words):
            self.found.proxies.append(proxy.proxy(script, command, words, self.notes))
        elif store.is_etcd(words):
            self.found.etcds.append(store.etcd(script, command, words, self.notes))
            engine = self.own_variables(command)
        elif store.is_worker(words):
            self.found.workers.append(store.worker(script, command, words, self.notes))
            engine = self.own_variables(command)
        else:
            self.other(command, words)
            return False
        for note in command.unread:
            add(self.notes.not_read, note.file, note.line, note.text, note.why)
        return engine

    def engine_words(self, command: Command, words: list[str]) -> list[str]:
        """The words from `vllm serve` on: what else stands before it, such as taskset, is told."""
        at = next((i for i in range(1, len(words)) if vllm.is_serve(words[i:])), 0)
        if at:
            why = "what stands before vllm is not kept"
            add(self.notes.not_read, self.file, command.line, " ".join(words[:at]), why)
        return words[at:]

    def own_variables(self, command: Command) -> bool:
        """Tells variables that stand before etcd or dscli. False: what is started is no engine."""
        for name in command.own:
            if name != "ETCD_UNSUPPORTED_ARCH":  # yrnode sets it itself where it is needed
                add(self.notes.not_read, self.file, command.line, f"{name}={command.env[name]}", _NO_KEY)
        return False

    def serve(self, script: Script, command: Command, words: list[str]) -> None:
        if any(map(needs_positions, words)):
            server = vllm.server(script, command, words, Notes())
            self.found.templates.append(Template(self.file, self.text, server, dict(script.variables)))
        else:
            self.found.servers.append(vllm.server(script, command, words, self.notes))

    def other(self, command: Command, words: list[str]) -> None:
        name = os.path.basename(words[0])
        why = _DROPPED.get(name, "")
        if name == "etcdctl" and any(word in _ASKS for word in words):
            why = _PROOF
        elif name == "dscli" and "stop" in words:
            why = _OWN_RULES
        if why:
            add(self.notes.dropped, self.file, command.line, command.text, why)
        else:
            self.unknown(command)

    def unknown(self, command: Command) -> None:
        why = "yrnode has no place for this command"
        add(self.notes.not_read, self.file, command.line, command.text, why)

    def sources(self, script: Script, engine: bool) -> None:
        """What a script sources is not followed; absolute ones become `env_from`, see cluster.py."""
        for line, path in script.sourced:
            if not engine or not known(path) or not path.startswith("/"):
                why = "it is not followed; give it too if it is one of these scripts, or write it into env_from"
                add(self.notes.not_read, self.file, line, f"source {path}", why)

    def leftovers(self, script: Script, engine: bool) -> None:
        """Variables that nothing has taken."""
        for name, line in script.lines.items():
            if name in script.used or deploy_env.is_deploy_env(script):
                continue
            text = f"{name}={shown(script.variables.get(name, ' '.join(script.arrays.get(name, ()))))}"
            if name not in script.exported:
                add(self.notes.dropped, self.file, line, text, "it is set and not used")
            elif not engine:
                add(self.notes.not_read, self.file, line, text, _NO_KEY)
