"""Describes the records of a trace in a few words, except messages (see ``message_text``)."""

from __future__ import annotations

from typing import assert_never

from stelae.sim.fault_plan import LEADER, Fault, FaultKind
from stelae.sim.network import NetworkLink
from stelae.sim.node_change import NodeChange
from stelae.sim.trace.message_text import message_text
from stelae.sim.trace.records import (
    CommitIndexRaised,
    LinksChanged,
    LogWritten,
    MessageSent,
    NodeChanged,
    NodeStarted,
    OperationAnswered,
    OperationBegun,
    ReplicaAppliedEntry,
    ReplicaConfigChanged,
    RoleChanged,
    TermSaved,
    TraceRecord,
    ViolationFound,
)

CHANGES: dict[NodeChange, str] = {
    NodeChange.START_FAILED: "cannot start yet",
    NodeChange.CRASHED: "CRASHED: un-synced writes may be lost",
    NodeChange.KILLED: "KILLED: the disk keeps all writes",
    NodeChange.GIVEN_UP: "LOST permanently",
    NodeChange.PAUSED: "PAUSED",
    NodeChange.RESUMED: "resumed",
    NodeChange.DISK_SLOW: "the disk is slow",
    NodeChange.DISK_NORMAL: "the disk has its normal speed",
    NodeChange.DISK_FULL: "the disk is full",
    NodeChange.DISK_FREED: "the disk has space",
    NodeChange.SYNC_WILL_FAIL: "the next sync of the log will fail",
    NodeChange.LOG_DAMAGED: "a bit of the log is flipped",
    NodeChange.ROWS_DAMAGED: "stored rows are damaged, and a read finds it",
    NodeChange.STAGE_DAMAGED: "an item that a copy has fetched is damaged",
    NodeChange.LOG_REPLACED: "the log is replaced by an older copy",
    NodeChange.FILES_LOST: "all files of the replica are gone",
    NodeChange.REPLICA_CREATED: "CREATED an empty replica",
    NodeChange.WITNESS_CREATED: "CREATED a log without rows",
    NodeChange.REPLICA_COPIED: "COPIED from another replica",
    NodeChange.ROWS_COPIED: "has got rows from another replica",
    NodeChange.REPLICA_DELETED: "DELETED, and votes as a tombstone",
    NodeChange.CLOCK_JUMPED: "the wall clock jumps",
    NodeChange.CLOCK_CORRECTED: "the wall clock is corrected",
}


def record_text(record: TraceRecord, nodes: int) -> str:
    """Describe a record of a run with ``nodes`` nodes, without its time and its node."""
    match record:
        case MessageSent():
            return message_text(record)
        case NodeStarted():
            return (
                f"STARTED term {record.term}{_vote(record.voted_for)} log ends at {record.last} commit {record.commit}"
            )
        case NodeChanged():
            return CHANGES[record.change]
        case LinksChanged():
            return links_text(record, nodes)[1]
        case RoleChanged():
            return _role(record)
        case TermSaved():
            return f"saved term {record.term}{_vote(record.voted_for)}"
        case LogWritten():
            return _log(record)
        case CommitIndexRaised():
            return f"commit {record.index}"
        case ReplicaConfigChanged():
            return _config(record)
        case ReplicaAppliedEntry():
            return f"applied {record.op_id}"
        case OperationBegun():
            keys = ", ".join(str(key) for key in record.keys)
            return f"{record.client} begins {record.action} {record.sequence or ''} of {keys or 'no rows'}"
        case OperationAnswered():
            return f"{record.client} {record.action} {record.sequence or ''} answered by {record.node}: {record.answer}"
        case ViolationFound():
            return f"VIOLATION of {record.invariant}: {record.detail}"
        case _:
            assert_never(record)


def fault_text(fault: Fault) -> str:
    """Describe a planned fault."""
    victim = "the leader" if fault.victim == LEADER else f"node {fault.victim}"
    if fault.kind in (FaultKind.LOSSY, FaultKind.SLOW_LINKS):
        victim = "all nodes"
    return f"fault {fault.number}: {fault.kind} of {victim} for {fault.duration_us / 1e6:.3f} s"


def links_text(record: LinksChanged, nodes: int) -> tuple[int, str]:
    """Return the node whose links were cut or mended, and a description."""
    links, verb = set(record.links), "cut" if record.cut else "mended"
    for node in range(nodes):
        others = [other for other in range(nodes) if other != node]
        incoming: set[NetworkLink] = {(other, node) for other in others}
        outgoing: set[NetworkLink] = {(node, other) for other in others}
        if links == incoming | outgoing:
            return node, f"all links {verb}"
        if links == incoming:
            return node, f"incoming links {verb}"
        if links == outgoing:
            return node, f"outgoing links {verb}"
    pairs = ", ".join(f"{sender}>{receiver}" for sender, receiver in record.links)
    return record.links[0][0], f"links {pairs} {verb}"


def _role(record: RoleChanged) -> str:
    text = f"{record.role} term {record.term}"
    if record.leader not in (None, record.node):
        text += f", leader {record.leader}"
    return text + (", serves" if record.serving else "")


def _config(record: ReplicaConfigChanged) -> str:
    """Name the members, with their types if they are not voters."""
    members = ", ".join(
        ("a stranger" if member.node is None else str(member.node))
        + ("" if member.member_type == "VOTER" else f" {member.member_type}")
        for member in record.members
    )
    return f"config {record.op_id}: {members or 'no members'}{'' if record.committed else '; not committed'}"


def _log(record: LogWritten) -> str:
    replaced = "" if record.replace_from is None else f"log cut from {record.replace_from}, "
    if record.error:
        return f"{replaced}append of {record.first}..{record.last} failed: {record.error}"
    if record.first is None:
        return f"{replaced}durable"
    entries = f"{record.first}" if record.first == record.last else f"{record.first}..{record.last}"
    return f"{replaced}durable {entries}"


def _vote(voted_for: int | None) -> str:
    return "" if voted_for is None else f" vote {voted_for}"
