"""Which node each line of server.sh is for, and the ranks that it starts there."""

from collections.abc import Iterable, Sequence

from yrnode.config.scripts import launch, values, vllm
from yrnode.config.scripts.bash import read
from yrnode.config.scripts.flags import unwrapped
from yrnode.config.scripts.launch import Launch
from yrnode.config.scripts.notes import Notes, add
from yrnode.config.scripts.proxy import Place, Proxy
from yrnode.config.scripts.reader import Found, Template


def started(found: Found, notes: Notes) -> list[vllm.Server]:
    """The servers that launch_online_dp.py would start, from its lines and the templates."""
    chosen = [(line, _template(line, found, notes)) for line in found.launches]
    pairs = [(line, template) for line, template in chosen if template is not None]
    for template in found.templates:
        if not any(used is template for _, used in pairs):
            text = "vllm serve with parameters"
            why = "no line of a server.sh starts it; give that file too, in the same directory"
            add(notes.not_read, template.file, template.server.line, text, why)
    servers = []
    for line, template in pairs:
        # a template of several nodes has one node's address in it, or a placeholder: it is meant for each of them
        alone = sum(used is template for _, used in pairs) == 1
        group = [other for other, used in pairs if _same(line, other) and used.server.role == template.server.role]
        addresses = _addresses(line, group, template, found.proxies, alone)
        if len(addresses) > 1:
            text = f"the node of rank {line.start}"
            add(notes.open, line.file, line.line, text, f"it is {' or '.join(addresses)}; the first is taken")
        servers += _ranks(line, template, next(iter(addresses), ""), alone, notes)
    return servers


def _same(one: Launch, other: Launch) -> bool:
    """Whether two lines start ranks of one group."""
    return (one.head, one.rpc_port, one.size, one.tensor) == (other.head, other.rpc_port, other.size, other.tensor)


def _template(line: Launch, found: Found, notes: Notes) -> Template | None:
    """The template of a line: in the same directory, else the only one, else by its role."""
    here = [t for t in found.templates if _folder(t.file) == _folder(line.file)]
    by_role = [t for t in found.templates if t.server.role == line.role]
    by_role_here = [t for t in here if t.server.role == line.role]
    for some in (here, by_role_here, found.templates, by_role):
        if len(some) == 1:
            return some[0]
    text = f"{launch.LAUNCHER} … --dp-rank-start {line.start}"
    why = "the run_dp_template.sh that it starts is not given"
    if found.templates:
        why = "several run_dp_template.sh are given; put each into one directory with its server.sh"
    add(notes.not_read, line.file, line.line, text, why)
    return None


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _addresses(
    line: Launch, group: Sequence[Launch], template: Template, proxies: Iterable[Proxy], alone: bool
) -> list[str]:
    """What is said of the node's address, the surest first."""
    told = [line.address]
    for proxy in proxies:
        told.append(_in_proxy(line, group, proxy.decode if template.server.role == "consumer" else proxy.prefill))
    if alone:
        told += template.server.candidates
    return list(dict.fromkeys(address for address in told if vllm.is_address(address)))


def _in_proxy(line: Launch, group: Sequence[Launch], places: Sequence[Place]) -> str:
    """The node of a line in the proxy's list, which is in rank order."""
    hosts = [host for host, _ in places]
    if len(hosts) == line.size:
        return hosts[line.start] if line.start < len(hosts) else ""
    nodes, starts = list(dict.fromkeys(hosts)), sorted({other.start for other in group})
    return nodes[starts.index(line.start)] if len(nodes) == len(starts) else ""


def _ranks(line: Launch, template: Template, address: str, alone: bool, notes: Notes) -> list[vllm.Server]:
    local = {} if alone else launch.own_address(template.variables, vllm.OWN_NAMES)
    positions = {str(at): values.part(values.POSITION, str(at)) for at in range(1, 8)}
    # its own words are told once, whatever nodes it is read for
    script = read(template.text, template.file, Notes(), positions, local)
    at = next(command for command in script.commands if command.line == template.server.line)
    words = unwrapped(at.words)[1]
    words = words[next(i for i in range(len(words)) if vllm.is_serve(words[i:])) :]
    servers = []
    for number in range(line.count):
        given = {**line.positions(number), "address": address or values.part(values.PLACEHOLDER, "address")}
        server = vllm.server(script, at, words, notes, given)
        server.address = address
        server.env = {**line.env, **server.env}
        server.unset += tuple(name for name in line.unset if name not in (*server.env, *server.unset))
        server.template = f"{line.head} {line.rpc_port} {line.size} {server.role}"
        server.node = f"{line.file}:{line.line}"
        servers.append(server)
    return servers
