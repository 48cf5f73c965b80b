"""Finds the problems of a cluster in its collected state. Pure functions: nothing here asks a node.

An *error* is something that is broken, or that will break at the next failure. A *warning* is something that the
operator should know. Each finding is a sentence with the place, the fact and, unless it is obvious, the next step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from stelae.check.cluster_state import ClusterState
from stelae.check.health import Members, NodeFacts, TableHealth, TabletHealth, TabletVerdict
from stelae.check.setting_differences import Severity, differences, versions
from stelae.protocol.catalog_names import SYSTEM_TABLET, ServerMode, TableId, TableState
from stelae.protocol.members_text import members_text
from stelae.protocol.node_messages import NodeInfo, QuarantineInfo, ReplicaFacts
from stelae.spi.ids import TabletId
from stelae.spi.members import VOTING, Member, TabletConfig

SILENT_MS = 5_000
"""After this time without a heartbeat, masters place no new replica on a server."""

CLOCK_ERROR_MS = 500
"""Allowed difference between clocks, for nodes that do not report their own limit."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem, or one warning."""

    severity: Severity
    text: str


def findings(state: ClusterState, masters: TabletHealth, tables: Sequence[TableHealth]) -> list[Finding]:
    """Return all findings, errors first. Causes come before their effects: clocks, nodes, connections, then tables."""
    infos = [facts.info for facts in state.nodes.values() if facts.info is not None]
    found = [
        *([_error(state.problem)] if state.problem else []),
        *_of_clocks(list(state.nodes.values())),
        *_of_masters(masters),
        *_of_masters_config(state),
        *_of_listed_masters(infos, state.masters_config),
        *_of_servers(state),
        *_of_connections(state),
        *(Finding(severity=one.severity, text=str(one)) for one in differences(infos)),
        *_of_versions(state, infos),
        *(finding for facts in state.nodes.values() for finding in _of_disk(facts)),
        *_of_tables(tables),
        *(_warning(text) for text in marked_members(state)),
        *(_warning(text) for text in stray_replicas(state)),
    ]
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)


def server_problem(state: ClusterState, node_id: str) -> str:
    """Return the problem of a tablet server; empty if it has none."""
    line = next(line for line in state.servers if line.node_id == node_id)
    problem = state.nodes[line.node_id].problem
    if not problem and (line.silent_ms is None or line.silent_ms > SILENT_MS):
        silent = "since this master leads" if line.silent_ms is None else f"for {line.silent_ms / 1000:.1f} s"
        problem = f"the masters have not heard of it {silent}"
    return problem


def _error(text: str) -> Finding:
    return Finding(severity=Severity.ERROR, text=text)


def _warning(text: str) -> Finding:
    return Finding(severity=Severity.WARNING, text=text)


def _of_masters(masters: TabletHealth) -> Iterator[Finding]:
    if masters.verdict is not TabletVerdict.HEALTHY:
        yield _error(f"masters: {masters.verdict}: {masters.why}")


def _of_servers(state: ClusterState) -> Iterator[Finding]:
    members = {node_id for table in state.tables for tablet in table.tablets for node_id, _ in tablet.members}
    all_described = len(state.tables) >= sum(one.state is not TableState.SOFT_DELETED for one in state.summaries)
    for line in state.servers:
        problem = server_problem(state, line.node_id)
        if problem and line.mode is ServerMode.RETIRING and all_described and line.node_id not in members:
            yield _warning(f"tablet server {line.address} is retired, has no replicas, and is gone: {problem}")
            continue
        if problem:
            yield _error(f"tablet server {line.address}: {problem}")
        if line.mode is not ServerMode.NORMAL:
            yield _warning(f"tablet server {line.address} is in mode {line.mode}: it is given no new replicas")
    if not state.servers and not state.problem:
        yield _error("no tablet server has reported to the masters yet")


def _of_tables(tables: Iterable[TableHealth]) -> Iterator[Finding]:
    for table in tables:
        bad = [tablet for tablet in table.tablets if tablet.verdict is not TabletVerdict.HEALTHY]
        for what, tablets in groupby(sorted(bad, key=_what), _what):
            ids = [tablet.tablet_id for tablet in tablets]
            which = f"tablet {ids[0]}" if len(ids) == 1 else f"{len(ids)} tablets"
            yield _error(f"{which} of {table.name}: {what}")
        if not bad and not table.healthy:
            yield _error(f"table {table.name} is {table.state}")


def _what(tablet: TabletHealth) -> str:
    """Return the problem of a tablet. The tablets of one dead server share it and are reported together."""
    return f"{tablet.verdict}: {tablet.why}"


def _of_connections(state: ClusterState) -> Iterator[Finding]:
    """Report nodes that answer us but cannot reach each other. A node that does not answer is reported elsewhere."""
    answering = {node_id for node_id, facts in state.nodes.items() if not facts.problem}
    for facts in state.nodes.values():
        for peer in () if facts.info is None else facts.info.peers:
            if not peer.connected and peer.node_id in answering:
                yield _error(f"{facts.address} has no connection to {peer.address}, though both answer")


def _of_clocks(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Compare the clocks with each other. Each was compared with the clock of this process, whose error cancels out.

    A node that answers slowly tells the time of its answer with a large error, also if the others are compared with it.
    """
    told = [facts for facts in nodes if facts.info is not None]
    if len(told) < 2:
        return
    middle = sorted(told, key=lambda facts: facts.clock_ahead_ms)[len(told) // 2]
    for facts in told:
        apart_ms = facts.clock_ahead_ms - middle.clock_ahead_ms
        allowed_ms = _clock_error_ms(facts.info)
        if abs(apart_ms) - facts.clock_error_ms - middle.clock_error_ms > allowed_ms:
            way = "ahead of" if apart_ms > 0 else "behind"
            fact = f"the clock of {facts.address} is {abs(apart_ms)} ms {way} the others'"
            yield _error(f"{fact}; {allowed_ms} ms are allowed: set its clock")


def _clock_error_ms(info: NodeInfo | None) -> int:
    found = None if info is None else info.settings.get("clock.clock_error_ms_max")
    return found if isinstance(found, int) else CLOCK_ERROR_MS


def _of_masters_config(state: ClusterState) -> Iterator[Finding]:
    """Warn of an even number of masters, and of one that has no vote yet: both are meant to last for a while only."""
    config = state.masters_config
    if config is None:
        return
    count = len(config.voters())
    if count % 2 == 0:
        fact = f"{count} masters vote, which tolerate no more failures than {count - 1}"
        yield _warning(f"{fact}: add one (stelae master add), or remove one (stelae master remove)")
    for member in config.members:
        if member.member_type not in VOTING:
            step = _way_to_a_vote(member, state.nodes.get(member.node_id))
            yield _warning(f"master {member.address} is a {member.member_type} and has no vote: {step}")


def _way_to_a_vote(member: Member, facts: NodeFacts | None) -> str:
    """Return how a master gets its vote, or that it never can: a new directory of a former voter is not filled."""
    waits = "the leader gives it its vote once it has caught up; see: stelae master list"
    if member.was_voter is not True or facts is None or facts.problem or SYSTEM_TABLET in facts.reports:
        return waits
    fact = "it had a vote once, and has no replica now. The leader fills only what is left of its old one"
    step = f"remove it (stelae master remove {member.node_id}), and add a master with a new uuid"
    return f"{fact}: see stelae copy list; if it shows no copy, {step}"


def _of_listed_masters(infos: Sequence[NodeInfo], config: TabletConfig | None) -> Iterator[Finding]:
    """Warn of nodes whose files list other masters than there are. They are compared by uuid, as the nodes do."""
    masters = {} if config is None else {member.node_id: member.address for member in config.members}
    nodes: dict[Members, list[str]] = {}
    for info in infos:
        nodes.setdefault(info.listed_masters, []).append(info.address)
    for members, addresses in nodes.items():
        listed = dict(members)
        if listed and masters and listed.keys() != masters.keys():
            sides = f"lists {members_text(listed, masters)}; the masters are {members_text(masters, listed)}"
            step = "change it in node.toml, for the next first contact; it is read when the node starts"
            yield _warning(f"[masters] of {', '.join(sorted(addresses))} {sides}: {step}")


def _of_versions(state: ClusterState, infos: Sequence[NodeInfo]) -> Iterator[Finding]:
    found = versions(infos)
    if len(found) > 1:
        held = "; ".join(f"{release} on {', '.join(nodes)}" for release, nodes in found.items())
        yield _warning(f"nodes run {len(found)} releases: {held}")
    for facts in state.nodes.values():
        if not facts.problem and facts.info is None:
            yield _warning(f"{facts.address} does not say what it runs: it is of an older release, or overloaded")


def _of_disk(facts: NodeFacts) -> Iterator[Finding]:
    kept = facts.quarantine
    if kept is None:
        yield from _of_unread_disk(facts)
        return
    if kept.free_bytes < kept.free_bytes_min:
        yield _little_left(facts.address, kept.free_bytes, kept.free_bytes_min)
    if excess := too_much(kept):
        yield _warning(f"quarantine of {facts.address}: {excess}")
    if kept.unreadable:
        what = f"{kept.unreadable} directories do not say of when they are, and are never too old"
        yield _warning(f"quarantine of {facts.address}: {what}; look at them with: stelae tablet quarantine list")


def _of_unread_disk(facts: NodeFacts) -> Iterator[Finding]:
    """Report a node that answers and cannot read its quarantine. A disk that fails has 0 free bytes."""
    if facts.info is None:
        return
    left, least = facts.info.free_bytes, facts.info.settings.get("quarantine.free_bytes_min")
    if not left:
        yield _error(f"the disk of {facts.address} fails, or has no space left; the log of the node says which")
    elif isinstance(least, int) and left < least:
        yield _little_left(facts.address, left, least)
    cause = "its disk fails, or it is overloaded; see the log of the node"
    yield _warning(f"quarantine of {facts.address}: the node has not read it: {cause}")


def _little_left(address: str, left: int, least: int) -> Finding:
    fact = f"{address} has {left} bytes of disk left, less than {least}"
    return _error(f"{fact}: writes stop when it is full; make room, or move replicas away")


def too_much(kept: QuarantineInfo) -> str:
    """Return which limit of a quarantine is exceeded, although the node purges it by itself; empty if none."""
    if kept.size_bytes > kept.bytes_max:
        return f"{kept.size_bytes} bytes are set aside, above {kept.bytes_max}, and are not purged"
    if kept.oldest_s is not None and kept.oldest_s > kept.age_s_max + 600:
        return f"something is {kept.oldest_s} s old, above {kept.age_s_max}, and is not purged"
    return ""


def stray_replicas(state: ClusterState) -> Iterator[str]:
    """Return a sentence for each replica that no table, or no config of its tablet, has.

    Masters never touch a tablet without a record, so the operator must know of it. A replica that was removed from its
    tablet is deleted by the masters soon."""
    described = {table.table_id: {t.tablet_id: dict(t.members) for t in table.tablets} for table in state.tables}
    recallable = {one.table_id for one in state.summaries if one.state is TableState.SOFT_DELETED}
    known = {one.table_id for one in state.summaries}
    for line in state.servers:
        info = state.nodes[line.node_id].info
        for facts in () if info is None else info.replicas:
            if facts.table_id in recallable or (facts.table_id in known and facts.table_id not in described):
                continue
            members = described.get(TableId(facts.table_id), {}).get(facts.tablet_id)
            if members is None:
                yield f"{line.address} has a replica of tablet {facts.tablet_id}, which no table has"
            elif members and line.node_id not in members:
                yield f"{line.address} has a replica of tablet {facts.tablet_id} and is no member of it"
        for failed in () if info is None else info.failed:
            others = next(
                (tablets[failed.tablet_id] for tablets in described.values() if failed.tablet_id in tablets), {}
            )
            if others and line.node_id not in others:
                yield (
                    f"{line.address} has a replica of tablet {failed.tablet_id} that does not start, and is no member "
                    f"of it: {failed.reason}"
                )


def marked_members(state: ClusterState) -> Iterator[str]:
    """Return a sentence for each move that is not complete, and for the tablets with replicas that operators added.

    Both are meant to last for a while only."""
    known: dict[TabletId, ReplicaFacts] = {}
    for info in (facts.info for facts in state.nodes.values() if facts.info is not None):
        for facts in info.replicas:
            if facts.tablet_id not in known or facts.config > known[facts.tablet_id].config:
                known[facts.tablet_id] = facts
    for table in state.tables:
        added = []
        for facts in (known[tablet.tablet_id] for tablet in table.tablets if tablet.tablet_id in known):
            yield from (f"tablet {facts.tablet_id} of {table.name}: {text}" for text in _moves(state, facts))
            replacing = {new for new, _ in facts.moves}
            surplus = len(facts.members) - len(facts.moves) > table.replication_factor
            added += [facts.tablet_id] if surplus and set(facts.pinned) - replacing else []
        if added:
            which = f"tablet {added[0]}" if len(added) == 1 else f"{len(added)} tablets, such as {added[0]},"
            fact = f"{which} of {table.name} has a replica besides the {table.replication_factor} wanted ones"
            ways = "remove one, or raise the number: stelae table alter TABLE --replicas N"
            yield f"{fact}, because an operator added it; {ways}"


def _moves(state: ClusterState, facts: ReplicaFacts) -> Iterator[str]:
    for new, old in facts.moves:
        ends = f"the replica on {state.address_of(old)} is being moved to {state.address_of(new)}"
        if new in facts.learners:
            step = "the new one has no vote yet; see: stelae copy list"
        else:
            step = "the masters remove the old one once a majority of the others is healthy; see: stelae policy explain"
        yield f"{ends}; {step}"
