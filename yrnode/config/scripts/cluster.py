"""What the scripts start → a cluster file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from yrnode.config.group import Group
from yrnode.config.load import validate
from yrnode.config.scripts import values
from yrnode.config.scripts.derived import WORKER_PORT
from yrnode.config.scripts.flags import Value, place
from yrnode.config.scripts.groups import Table, check_sizes, entry, sorted_groups
from yrnode.config.scripts.nodes import nodes_of
from yrnode.config.scripts.notes import Notes, add
from yrnode.config.scripts.place import started
from yrnode.config.scripts.proxy import Proxy
from yrnode.config.scripts.reader import Found, find
from yrnode.config.scripts.store import Etcd, Worker
from yrnode.config.scripts.text import yaml_text
from yrnode.config.scripts.vllm import Server, is_address
from yrnode.config.yaml import KeyPath, parse
from yrnode.model.errors import UsageError

CLIENT_PORT, PEER_PORT, ROUTER_PORT = 2379, 2380, 8000
_NAMES = {"producer": "prefill", "consumer": "decode", "both": "serve"}
_UNKNOWN = "192.0.2."
"""Addresses for documentation, which nobody has: they stand for those that are not known."""


@dataclass
class Imported:
    """The cluster file's text, and what is to be told beside."""

    text: str
    notes: Notes


def imported(files: Sequence[str], deployment: str | None = None) -> Imported:
    """A cluster file from scripts. Raises UsageError where a file is none, or none starts vLLM."""
    notes = Notes()
    found = find(files, notes, deployment)
    servers = [*found.servers, *started(found, notes)]
    if not servers:
        what = notes.not_read[-1] if found.templates or found.launches else "no file among them starts vLLM"
        raise UsageError(f"{what}; give the script with vllm serve, or run_dp_template.sh and its server.sh")
    draft = _Draft(found, sorted_groups(servers, notes), notes)
    data = draft.data()
    text = yaml_text(data, draft.comments)
    try:
        validate(parse(text.encode(), "cluster.yaml"), Path.cwd())
    except UsageError as error:
        for line in error.lines:
            add(notes.open, "", 0, "", f"the file does not pass yet: {line}")
    return Imported(text, notes)


class _Draft:
    """The file's values, part by part."""

    def __init__(self, found: Found, groups: list[list[Server]], notes: Notes) -> None:
        self.found, self.groups, self.notes = found, groups, notes
        self.nodes = nodes_of(groups, found)
        self.comments: dict[KeyPath, str] = {}
        self.names: list[str] = []
        for group in groups:
            stem = _NAMES[group[0].role]
            count = sum(name.rstrip("0123456789") == stem for name in self.names)
            self.names.append(f"{stem}{count + 1}" if count else stem)

    def data(self) -> Table:
        # the others may add nodes
        datasystem, etcd, router = self.datasystem(), self.etcd(), self.router()
        entries = self.entries(datasystem)
        env = _shared(entries) if len(entries) > 1 else {}
        found: Table = {"cluster": self.cluster(), "nodes": self.machines()}
        found |= {"bin": self.programs(), "env_from": self.sourced(), "env": env, "etcd": etcd}
        found |= {"datasystem": datasystem, "groups": entries, "router": router}
        return {key: value for key, value in found.items() if value}

    def cluster(self) -> str:
        """A name: that of the model in requests."""
        names = (s.args.get("served-model-name") for g in self.groups for s in g)
        name = next((n if isinstance(n, str) else n[0] for n in names if isinstance(n, str | tuple)), "vllm")
        plain = re.sub(r"[^a-z0-9._-]+", "-", values.shown(name).lower()).strip("-._")[:50]
        return (plain or "vllm") + ("-pd" if any(g[0].role == "producer" for g in self.groups) else "")

    def machines(self) -> Table:
        found: Table = {}
        for at, draft in enumerate(self.nodes.all, 1):
            found[draft.name] = {"address": draft.address or f"{_UNKNOWN}{at}"}
            if draft.nic:
                found[draft.name]["nic"] = draft.nic
            if not draft.address:
                self.comments["nodes", draft.name] = "its address is not in the scripts: write it here"
                server = draft.servers[0]
                text = f"nodes.{draft.name}.address"
                why = "its address is not in the scripts; write it in place of this one"
                add(self.notes.open, server.file, server.line, text, why)
        return found

    def entries(self, datasystem: Table) -> Table:
        check_sizes(self.groups, self.notes)
        found = {
            n: entry(g, self.nodes, datasystem, self.notes) for n, g in zip(self.names, self.groups, strict=True)
        }
        ends = [
            [n for n, g in zip(self.names, self.groups, strict=True) if g[0].role == role]
            for role in ("producer", "consumer")
        ]
        if len(ends[0]) == len(ends[1]) == 1:
            for name, other in ((ends[0][0], ends[1][0]), (ends[1][0], ends[0][0])):
                found[name]["peer"] = other
        for name, table in found.items():
            if "engine_id" in table.get("kv_connector", {}).get("mooncake", {}):
                why = "it stays over restarts: decode ranks go on with the addresses of ranks that are gone"
                self.comments["groups", name, "kv_connector", "mooncake", "engine_id"] = f"{why}; better without"
        order = [*Group.model_fields]
        return {n: {key: t[key] for key in order if key in t} for n, t in found.items()}

    def programs(self) -> Table:
        """Programs that are given as paths."""
        given: list[tuple[str, Server | Etcd | Worker | Proxy]] = [("vllm", s) for g in self.groups for s in g]
        given += [*(("etcd", e) for e in self.found.etcds), *(("dscli", w) for w in self.found.workers)]
        given += [("python", p) for p in self.found.proxies]
        found: Table = {}
        for key, item in given:
            if "/" in item.program and found.setdefault(key, item.program) != item.program:
                why = f"another script has {found[key]}; the cluster file has one"
                add(self.notes.not_read, item.file, item.line, item.program, why)
        return found

    def sourced(self) -> list[str]:
        paths = (path for group in self.groups for server in group for path in server.sourced)
        return [path for path in dict.fromkeys(paths) if values.known(path) and path.startswith("/")]

    def datasystem(self) -> Table:
        """One for all workers; what another worker has differently is told."""
        workers = self.found.workers
        if not workers:
            text = "datasystem"
            why = "no dscli start is among the files: each node's worker gets yrnode's own values"
            add(self.notes.open, "", 0, text, why)
            port = next((p for g in self.groups for s in g if (p := _stored_at(s)) is not None), None)
            return {"port": port} if port not in (None, WORKER_PORT) else {}
        first = workers[0]
        port = next((worker.port for worker in workers if worker.port is not None), None)
        for worker in workers:
            same = {**first.keys, "args": first.args, "port": port}
            for key, value in {**worker.keys, "args": worker.args, "port": worker.port or port}.items():
                if same.get(key) != value:
                    why = f"it is another in {first.file}:{first.line}; the cluster file has one for all nodes"
                    add(self.notes.not_read, worker.file, worker.line, f"{key}: {value}", why)
            if is_address(worker.host):
                self.nodes.add(worker.host, self.notes, worker.file, worker.line)
        if port is None:
            text = f"--worker_address {first.host}"
            add(self.notes.open, first.file, first.line, text, f"its port is not known; {WORKER_PORT} is taken")
        own = {"port": port} if port not in (None, WORKER_PORT) else {}
        args = dict(first.args)
        if first.keys.get("huge_pages") and args.get("arena_per_tenant") == "1":
            # yrnode's own with huge pages
            del args["arena_per_tenant"]
        return {**own, **first.keys, **({"args": args} if args else {})}

    def etcd(self) -> Table:
        etcds, workers = self.found.etcds, self.found.workers
        used = [place for worker in workers for place in worker.etcd]
        hosts = {host for host, _ in used if is_address(host)}
        ours = [e for e in etcds if not hosts or not is_address(e.host) or e.host in hosts or len(e.members) > 1]
        for other in etcds:
            if other not in ours:
                why = "no worker uses this one; one cluster has one etcd"
                add(self.notes.not_read, other.file, other.line, f"etcd on {other.host}", why)
        if not ours and hosts:
            return self.external(used)
        for other in [e for e in ours[1:] if len(e.members) < 2 and is_address(e.host) and e.host != ours[0].host]:
            why = f"it is a store of its own beside {ours[0].host}'s; one cluster has one, which all workers use"
            add(self.notes.not_read, other.file, other.line, f"etcd on {other.host}", why)
            ours.remove(other)
        addresses = {a for e in ours for a in (*e.members.values(), e.host) if is_address(a)}
        member = ours[0] if ours else None
        file, line = (member.file, member.line) if member else ("", 0)
        names = [self.nodes.add(a, self.notes, file, line).name for a in sorted(addresses, key=self._rank)]
        if not names:
            names = [self.nodes.all[0].name]
            if len(self.nodes.all) > 1 or member is None:
                what = "its address is not known" if member else "no etcd is among the files"
                add(self.notes.open, file, line, "etcd", f"{what}; {names[0]} is taken for it")
        found: Table = {"nodes": names}
        said = member.client_port if member else next((port for _, port in used if port is not None), None)
        found |= self._ports(said, "client_port", CLIENT_PORT)
        found |= self._ports(member.peer_port if member else None, "peer_port", PEER_PORT)
        if member and member.data_dir and values.known(member.data_dir):
            found["data_dir"] = member.data_dir
            self.comments["etcd", "data_dir"] = (
                "what is in it now is not yrnode's: move it away before the first start"
            )
        if member and member.args:
            found["args"] = member.args
        return found

    @staticmethod
    def _ports(port: int | None, key: str, default: int) -> Table:
        return {key: port} if port not in (None, default) else {}

    def _rank(self, address: str) -> int:
        draft = self.nodes.at(address)
        return self.nodes.all.index(draft) if draft else len(self.nodes.all)

    def external(self, used: Sequence[tuple[str, int | None]]) -> Table:
        """An etcd that no script starts."""
        urls = list(dict.fromkeys(f"http://{host}:{port or CLIENT_PORT}" for host, port in used if is_address(host)))
        worker = self.found.workers[0]
        why = "no script among the files starts it, so yrnode does not either; give run_etcd.sh too if it should"
        add(self.notes.open, worker.file, worker.line, f"etcd at {', '.join(urls)}", why)
        return {"external": urls}

    def router(self) -> Table:
        if not self.found.proxies:
            return {}
        proxy, *others = self.found.proxies
        for other in others:
            add(self.notes.not_read, other.file, other.line, "another proxy", "the cluster file has one router")
        found: Table = {"node": self._at(proxy)}
        found |= self._ports(proxy.port, "port", ROUTER_PORT)
        found["script"] = values.shown(proxy.script) or "load_balance_proxy_server_example.py"
        if not found["script"].startswith("/"):
            self.comments["router", "script"] = "beside this file, or write its path"
        if not (proxy.script and values.known(proxy.script)):
            add(
                self.notes.open,
                proxy.file,
                proxy.line,
                "router.script",
                "the proxy's script is not known; write its path",
            )
        for key, name in (("prefill", "prefill"), ("decode", "decode")):
            if name in self.names:
                found[key] = name
        self._members(proxy)
        found["args"] = {name: _shown(value) for name, value in proxy.args.items()}
        if proxy.host and values.known(proxy.host) and not is_address(proxy.host):
            found["args"]["host"] = proxy.host
        found["env"] = {name: values.shown(value) for name, value in proxy.env.items()}
        return {key: value for key, value in found.items() if value}

    def _at(self, proxy: Proxy) -> str:
        if is_address(proxy.host):
            return self.nodes.add(proxy.host, self.notes, proxy.file, proxy.line).name
        name = self.nodes.all[0].name
        if len(self.nodes.all) > 1:
            text = f"--host {proxy.host}"
            add(self.notes.open, proxy.file, proxy.line, text, f"it names no node; {name} is taken for the router")
        return name

    def _members(self, proxy: Proxy) -> None:
        """The proxy's lists against the servers: yrnode makes them from the groups."""
        for role, places, word in (("producer", proxy.prefill, "prefiller"), ("consumer", proxy.decode, "decoder")):
            servers = [s for g in self.groups if g[0].role == role for s in g if s.answers]
            real = [(self.nodes.of(s).address, s.port) for s in servers]
            typed = [(host if is_address(host) else "", port) for host, port in places]
            for at, (host, port) in enumerate(typed):
                if host and (host, port) not in real:
                    text = f"--{word}-hosts[{at}] {host}:{port}"
                    why = "no script among the files starts a server there; it is left out"
                    add(self.notes.open, proxy.file, proxy.line, text, why)
            if len(typed) != len(real):
                text = f"--{word}-hosts"
                why = f"it has {len(typed)} servers, and the scripts start {len(real)}"
                add(self.notes.open, proxy.file, proxy.line, text, why)


def _shared(entries: Table) -> dict[str, str]:
    """Takes out of the groups what all of them set alike: it stands once, for every rank."""
    tables = [table.get("env", {}) for table in entries.values()]
    common = {k: v for k, v in tables[0].items() if all(k in t and t[k] == v for t in tables)}
    unset = {name for table in entries.values() for name in table.get("unset", ())}
    # what stands on another variable must follow it
    common = {k: v for k, v in common.items() if k not in unset and "${" not in v.replace("${" + k + "}", "")}
    for table in entries.values():
        table["env"] = {k: v for k, v in table.get("env", {}).items() if k not in common}
        if not table["env"]:
            del table["env"]
    return common


def _stored_at(server: Server) -> int | None:
    """The port of the worker that a server is told."""
    return place(server.env.get("DS_WORKER_ADDR", ""))[1]


def _shown(value: Value) -> bool | str | list[str]:
    if isinstance(value, bool):
        return value
    return values.shown(value) if isinstance(value, str) else [values.shown(word) for word in value]
