"""Judges the health of tablets and tables from the answers of masters and servers. Pure functions.

A tablet is:

- HEALTHY if all of its members run and agree on one leader;
- UNDER_REPLICATED if a majority runs, and other members do not run, or need a copy because no log has the entries that
  they lack, or it has fewer voters than the table has replicas;
- CONSENSUS_MISMATCH if running replicas name different leaders, terms or members, or other members than the masters;
- UNAVAILABLE without a majority or without a leader;
- UNFINISHED while masters are still creating, changing or replacing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from stelae.check.fault_tolerance import losses_survived
from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.master_messages import TableDescription
from stelae.protocol.node_messages import NodeInfo, QuarantineInfo, ReplicaFacts
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.ids import NodeId, TabletId

Members = tuple[tuple[NodeId, str], ...]


class TabletVerdict(StrEnum):
    """The health of a tablet. The worst value is the last one."""

    HEALTHY = "HEALTHY"
    UNFINISHED = "UNFINISHED"
    UNDER_REPLICATED = "UNDER_REPLICATED"
    CONSENSUS_MISMATCH = "CONSENSUS_MISMATCH"
    UNAVAILABLE = "UNAVAILABLE"


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one node."""

    node_id: NodeId
    address: str
    problem: str = ""  #: Why the node did not answer; empty if it did.
    reports: Mapping[TabletId, ReplicaReport] = {}
    info: NodeInfo | None = None  #: ``None``: the release of the node does not know the request.
    quarantine: QuarantineInfo | None = None  #: ``None``: the release of the node does not know the request.
    clock_ahead_ms: int = 0  #: How far its clock is ahead of the clock of this process.
    clock_error_ms: int = 0  #: How far ``clock_ahead_ms`` may be off.

    @property
    def facts(self) -> dict[TabletId, ReplicaFacts]:
        """What the node reports of its replicas besides ``reports``."""
        return {} if self.info is None else {facts.tablet_id: facts for facts in self.info.replicas}


class ReplicaHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a tablet: one row of the consensus matrix."""

    node_id: NodeId
    address: str
    role: str = "-"
    term: int = 0
    leader: NodeId | None = None
    last: str = "-"
    commit: int = 0
    applied: int = 0
    config: str = "-"  #: Op id of its newest config.
    members: tuple[NodeId, ...] = ()  #: The members of this config.
    learners: tuple[NodeId, ...] = ()  #: Those of them that have no vote.
    votes: bool = True  #: Whether it has a vote in the newest config that a replica knows.
    log_only: bool = False  #: It is a witness in that config: it votes, and has no rows yet.
    change_pending: bool = False  #: Whether this config is not committed yet.
    size_bytes: int | None = None
    unheard: tuple[NodeId, ...] = ()  #: On a leader: members that it has not heard from for too long.
    problem: str = ""  #: Why it does not run; empty if it runs.
    configuring: bool = False  #: It runs but knows no committed entry of its term, as while there is no leader.
    log_begins: int | None = None  #: The first index that its log still has, or will have; ``None``: not known.
    copies_needed: tuple[NodeId, ...] = ()  #: On a leader: members that its log cannot catch up.
    needs_copy: str = ""  #: Why it needs a copy; empty if it does not.

    @property
    def state(self) -> str:
        """Return one word if it runs, otherwise the problem."""
        runs = "CONFIGURING" if self.configuring else "RUNNING"
        return self.problem or ("NEEDS_COPY" if self.needs_copy else runs)

    @property
    def lost(self) -> bool:
        """Whether it acknowledges no entries until somebody acts: it does not run, or it needs a copy."""
        return bool(self.problem or self.needs_copy)

    @property
    def in_short(self) -> str:
        """Return the problem without its cause."""
        return in_short(self.problem)


class TabletHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one tablet: the verdict, the reason, and its members."""

    tablet_id: TabletId
    verdict: TabletVerdict
    why: str
    replicas: tuple[ReplicaHealth, ...]
    #: How many more voters may fail until no majority is left, or no rows; negative if the tablet serves nothing now.
    losses_survived: int = 0

    @property
    def contradictory(self) -> bool:
        """Whether the answers contradict each other, or no leader is named although a majority of the voters runs.

        Both also happen while nothing is wrong: if a leader or a config changes between two answers."""
        voters = [replica for replica in self.replicas if replica.votes]
        majority_runs = sum(not replica.problem for replica in voters) > len(voters) // 2
        leaderless = self.verdict is TabletVerdict.UNAVAILABLE and majority_runs
        return leaderless or self.verdict is TabletVerdict.CONSENSUS_MISMATCH


class TableHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one table and its tablets."""

    table_id: TableId
    name: str
    state: TableState
    tablets: tuple[TabletHealth, ...]

    @property
    def healthy(self) -> bool:
        """Whether no change of the table is under way and all of its tablets are healthy."""
        return self.state is TableState.RUNNING and all(t.verdict is TabletVerdict.HEALTHY for t in self.tablets)


_RUNS = ("RUNNING", "CONFIGURING")

REMEDY = "the leader has it copied from another replica; if that does not begin, the log of its server says why"
"""What an operator can do about a replica that needs a copy."""

TOO_FEW = "the masters add the others on servers that have no replica of it; see: stelae policy explain"
"""What an operator can do about a tablet with fewer voters than its table has replicas."""

CARETAKER = "a voter with the rows runs and has caught up; start those that do not run"
"""When a witness that leads hands over."""

NO_ROWS = "a witness has the log only, copies the rows, and then is a full voter; see: stelae copy list"
"""What an operator should know about a tablet with witnesses."""

SILENT = "does not answer"
"""The beginning of the problem of a node that did not answer; the cause follows."""


def in_short(problem: str) -> str:
    """Return a problem without the cause of a node's silence, which is reported once, with the nodes."""
    return SILENT if problem.startswith(SILENT) else problem


def tablet_health(
    tablet_id: TabletId, members: Members, nodes: Mapping[NodeId, NodeFacts], *, wanted: int = 0, unfinished: str = ""
) -> TabletHealth:
    """Judge one tablet by the answers of its members.

    Args:
        wanted: how many voters it must have.
        unfinished: what the masters are still doing with the tablet; empty: nothing.
    """
    asked = [_replica(node, address, tablet_id, nodes.get(node)) for node, address in members]
    replicas = _with_copies(_with_votes(tablet_id, asked, nodes))
    verdict, why = _judge(replicas)
    if unfinished:
        verdict, why = TabletVerdict.UNFINISHED, unfinished
    voters = [replica for replica in replicas if replica.votes]
    with_rows = [replica for replica in voters if not replica.log_only]
    if verdict is TabletVerdict.HEALTHY and len(voters) < wanted:
        verdict, why = TabletVerdict.UNDER_REPLICATED, f"{len(voters)} of {wanted} voters exist; {TOO_FEW}"
    elif verdict is TabletVerdict.HEALTHY and len(with_rows) < wanted:
        verdict, why = TabletVerdict.UNDER_REPLICATED, f"{len(with_rows)} of {wanted} voters have the rows; {NO_ROWS}"
    return TabletHealth(
        tablet_id=tablet_id,
        verdict=verdict,
        why=why,
        replicas=replicas,
        losses_survived=losses_survived(
            len(voters),
            down=sum(replica.lost for replica in voters),
            with_rows=sum(not replica.lost for replica in with_rows),
        ),
    )


def table_health(table: TableDescription, nodes: Mapping[NodeId, NodeFacts]) -> TableHealth:
    """Judge every tablet of a table."""
    tablets = []
    for tablet in table.tablets:
        state = "" if tablet.state is TabletState.RUNNING else f"the masters have it as {tablet.state}"
        wanted = table.replication_factor
        tablets.append(tablet_health(tablet.tablet_id, tablet.members, nodes, wanted=wanted, unfinished=state))
    return TableHealth(table_id=table.table_id, name=table.name, state=table.state, tablets=tuple(tablets))


def _replica(node_id: NodeId, address: str, tablet_id: TabletId, facts: NodeFacts | None) -> ReplicaHealth:
    if facts is None or facts.problem:
        why = "no such server" if facts is None else facts.problem
        return ReplicaHealth(node_id=node_id, address=address, problem=why)
    report = facts.reports.get(tablet_id)
    if report is None:
        return ReplicaHealth(node_id=node_id, address=address, problem=_why_missing(tablet_id, facts))
    more = facts.facts.get(tablet_id)
    return ReplicaHealth(
        node_id=node_id,
        address=address,
        role=report.role,
        term=report.term,
        leader=report.leader,
        last=str(report.last),
        commit=report.commit,
        applied=report.applied,
        config="-" if more is None else str(more.config),
        members=() if more is None else more.members,
        learners=() if more is None else more.learners,
        change_pending=more is not None and more.change_pending,
        size_bytes=None if more is None else more.size_bytes,
        unheard=() if more is None else more.unhealthy,
        problem="" if report.state in _RUNS else f"{report.state} {report.failure}".strip(),
        configuring=report.state == "CONFIGURING",
        log_begins=None if more is None or more.log_base is None else more.log_base.index + 1,
        copies_needed=() if more is None else more.copies_needed,
    )


def _with_votes(
    tablet_id: TabletId, replicas: Sequence[ReplicaHealth], nodes: Mapping[NodeId, NodeFacts]
) -> list[ReplicaHealth]:
    """Mark the members that have no vote, or no rows, in the newest config that a replica knows."""
    known = [facts.facts[tablet_id] for facts in nodes.values() if tablet_id in facts.facts]
    newest = max(known, key=lambda facts: facts.config, default=None)
    if newest is None:
        return list(replicas)
    return [
        msgspec.structs.replace(r, votes=r.node_id not in newest.learners, log_only=r.node_id in newest.witnesses)
        for r in replicas
    ]


def _with_copies(replicas: Sequence[ReplicaHealth]) -> tuple[ReplicaHealth, ...]:
    """Add the reason to each replica that needs a copy because the newest leader cannot catch it up."""
    leading = [replica for replica in replicas if replica.role == "LEADER" and not replica.problem]
    lagging = max(leading, key=lambda replica: replica.term).copies_needed if leading else ()
    return tuple(
        msgspec.structs.replace(replica, needs_copy=_why_copy(replica, replicas))
        if replica.node_id in lagging
        else replica
        for replica in replicas
    )


def _why_copy(lagging: ReplicaHealth, replicas: Sequence[ReplicaHealth]) -> str:
    others = [(r.address, r.log_begins) for r in replicas if r is not lagging and r.log_begins is not None]
    begin = ", ".join(f"{first} on {address}" for address, first in others)
    if lagging.problem.startswith("FAILED"):
        return "its replica has failed"
    if lagging.problem and any(first == 1 for _, first in others):
        return "its server has no replica of it"
    if lagging.problem:
        return f"its log ended before those of all others begin, which is at index {begin}"
    last_index = int(lagging.last.partition(".")[2])
    reason = f"its log ends at {lagging.last}, and the logs of all others begin at index {begin}"
    able = ", ".join(address for address, first in others if first <= last_index + 1)
    hint = f"; the log of {able} reaches back far enough, if that replica becomes the leader"
    return reason + (hint if able else "")


def _why_missing(tablet_id: TabletId, facts: NodeFacts) -> str:
    for failed in () if facts.info is None else facts.info.failed:
        if failed.tablet_id == tablet_id:
            return f"FAILED {failed.reason}" + ("; it will never vote again" if failed.op_id_lost else "")
    return "the server has no such replica"


def _judge(replicas: Sequence[ReplicaHealth]) -> tuple[TabletVerdict, str]:
    voters = [replica for replica in replicas if replica.votes]
    majority = len(voters) // 2 + 1
    present = [replica for replica in replicas if not replica.problem]
    voting = [replica for replica in voters if not replica.problem]
    if len(voting) < majority:
        what = "replicas" if len(voters) == len(replicas) else "voters"
        fact = f"{len(voting)} of {len(voters)} {what} run; {majority} are needed"
        return (
            TabletVerdict.UNAVAILABLE,
            f"{fact}; start the others again, or see `stelae recover plan` if they are lost",
        )
    running = [replica for replica in present if not replica.configuring]
    if sum(replica.votes for replica in running) < majority:
        return TabletVerdict.UNAVAILABLE, _no_leader(present, replicas)
    newest = max(replica.term for replica in running)
    leaders = [replica for replica in running if replica.role == "LEADER" and replica.term == newest]
    if len(leaders) != 1:
        return TabletVerdict.UNAVAILABLE, _no_leader(running, replicas)
    others = [r for r in running if (r.term, r.leader) != (newest, leaders[0].node_id)]
    if others:
        named = ", ".join(replica.address for replica in others)
        return TabletVerdict.CONSENSUS_MISMATCH, f"not in agreement with the leader of term {newest}: {named}"
    return _judge_led(leaders[0], running, present, replicas)


def _judge_led(
    leader: ReplicaHealth,
    running: Sequence[ReplicaHealth],
    present: Sequence[ReplicaHealth],
    replicas: Sequence[ReplicaHealth],
) -> tuple[TabletVerdict, str]:
    """Judge a tablet whose running replicas agree on their leader."""
    known = {replica.node_id for replica in replicas}
    strange = [replica.address for replica in running if replica.members and set(replica.members) != known]
    if strange:
        return TabletVerdict.CONSENSUS_MISMATCH, f"other members than the masters have on record: {', '.join(strange)}"
    if leader.log_only:
        return (
            TabletVerdict.UNAVAILABLE,
            f"{leader.address} leads without rows, and serves no requests until {CARETAKER}",
        )
    if len(running) < len(replicas) or any(replica.needs_copy for replica in replicas):
        return TabletVerdict.UNDER_REPLICATED, _missing(present, replicas)
    unheard = ", ".join(r.address for r in replicas if r.node_id in leader.unheard)
    if unheard:
        return TabletVerdict.UNDER_REPLICATED, f"the leader has not heard for too long: {unheard}"
    return TabletVerdict.HEALTHY, ""


def _no_leader(running: Sequence[ReplicaHealth], replicas: Sequence[ReplicaHealth]) -> str:
    """Return why a tablet does not serve although a majority of its replicas runs."""
    newest = max(replica.term for replica in running)
    leading = ", ".join(r.address for r in running if r.role == "LEADER" and r.term == newest)
    why = f"{leading} leads in term {newest}, of which nothing is committed yet" if leading else "none leads"
    return f"{len(running)} of {len(replicas)} replicas run, and {why}"


def _missing(running: Sequence[ReplicaHealth], replicas: Sequence[ReplicaHealth]) -> str:
    down = ", ".join(f"{r.address} ({r.in_short})" for r in replicas if r.problem)
    late = ", ".join(r.address for r in running if r.configuring and not r.needs_copy)
    parts = [f"{len(running)} of {len(replicas)} replicas run; not: {down}"] if down else []
    parts += [f"not in touch with the leader yet: {late}"] if late else []
    copies = [f"{r.address} needs a copy, because {r.needs_copy}" for r in replicas if r.needs_copy]
    return "; ".join([*parts, *copies, *([REMEDY] if copies else [])])
