"""Floors: what must happen at least once over a hundred seeds.

Each floor is the name of a fault, of a field of a Ready, of a row of the consensus transition table, or of another
count of the simulator. The seeds that together meet all floors run first (``first_seeds``), the others only until no
floor is missing. `make soak` runs all seeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import pytest

from stelae.sim.fault_plan import FaultKind
from stelae.sim.profile import ProfileKind
from stelae.sim.report import RunResult
from stelae.sim.run import run_seed
from stelae.spi.consensus import Ready, Role
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.transitions import TRANSITIONS, Cause
from tests.at_length import AT_LENGTH
from tests.sim.first_seeds import first_seeds, in_order
from tests.sim.messages import note_messages
from tests.sim.store_lookups import note_store_lookups

SEEDS = range(1, 101)


def move_name(role: Role, cause: Cause) -> str:
    """Return the name of a row of the transition table."""
    return f"move.{role}.{cause}"


OF_MEMBERSHIP = {Cause.MADE_VOTER, Cause.MADE_LEARNER, Cause.REMOVED}
"""Members are fixed in these runs; ``member_floors`` has the floors of those in which they change."""

NOT_DRIVEN = Cause.STEP_DOWN
"""Used only for an orderly stop of a replica, which runs do not have."""

RARE = {(Role.CANDIDATE, Cause.PERSIST_FAILED)}
"""A follower must lose its leader while one of its appends is about to fail. That happens once in some hundred runs."""

READY_FIELDS_EXCEPTED = {"fatal", "copy_requests", "config_changes", "aborted", "stood_down"}

OTHERS = {
    "answer.done",
    "alter.add_and_drop",
    "alter.addcolumn",
    "alter.done",
    "alter.dropcolumn",
    "alter.refused",
    "alter.renamecolumn",
    "alter.retry",
    "alter.swap",
    "answer.mismatch",
    "answer.refused",
    "answer.retry",
    "answer.stale",
    "client.imposed",
    "client.repeated",
    "client.retry",
    "clock.refused",
    "event.BeatException",
    "event.PersistFailed",
    "event.RangeSent",
    "flush.asked_ahead",
    "held.Persisted",
    "held.Received",
    "log.begun",
    "log.begun_failed",
    "log.collected",
    "log.fast.segmented",
    "log.fast.shared",
    "log.segmented",
    "log.shared",
    "log.space_used_again",
    "message.beat",
    "message.beat_ack",
    "message.raft.append",
    "message.raft.append_reply",
    "message.raft.timeout_now",
    "message.raft.vote",
    "message.raft.vote_reply",
    "metric.consensus_messages_refused",
    "network.duplicated",
    "network.lost",
    "network.peer_lost",
    "network.reordered",
    "node.given_up",
    "node.killed_within",
    "node.log_damaged",
    "node.log_older",
    "node.power_lost_within",
    "node.start_refused",
    "read.before_serving",
    "restart.idle",
    "range.fault_within",
    "range.partly_known",
    "range.partly_stale",
    "range.regrouped",
    "range.several",
    "rows.0",
    "rows.partial",
    "rows.1",
    "rows.2",
    "rows.3",
    "rows.unfit",
    "scan.fresh",
    "scan.led",
    "scan.linearizable",
    "scan.settled",
    "scan.too_old",
    "scratch_log.collected",
    "scratch_log.failed",
    "scratch_log.refused",
    "scratch_log.replaced",
    "stale.AppendEntries",
    "stale.AppendReply",
    "stale.LeaderAlive",
    "stale.PeerAlive",
    "stale.TimeoutNow",
    "stale.VoteReply",
    "stale.VoteRequest",
    "snapshot.over_an_edit",
    "snapshot.read",
    "snapshot.resumed",
    "snapshot.schema_changed",
    "snapshot.too_old",
    "store.compaction",
    "store.edit_committed",
    "store.floor_raised",
    "store.flush",
    "store.obsolete_removed",
    "store.opened_at_flushed",
    "store.pushed_back",
    "store.replayed",
    "writer.attempt_deadline",
    "writer.attempt_unavailable",
    "writer.done",
    "writer.let_go",
    "writer.refused",
    "writer.stale_epoch",
    "writer.unknown",
}

OF_MEMBERS = (
    FaultKind.LOST_REPLICA,
    FaultKind.ALONE_WITH_WITNESS,
    FaultKind.LEADER_IN_COPY,
    FaultKind.ROWS_DAMAGED,
    FaultKind.STAGE_DAMAGED,
)
"""Kinds of faults that only happen where members change, or replicas are copied."""

FAULTS = {f"fault.{kind}" for kind in FaultKind if kind not in OF_MEMBERS}
READY = {f"ready.{name}" for name in set(Ready.__struct_fields__) - READY_FIELDS_EXCEPTED}
MOVES = {
    move_name(role, cause)
    for cause, row in TRANSITIONS.items()
    for role, target in row.items()
    if role in (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)
    and target is not None
    and cause not in OF_MEMBERSHIP
    and cause is not NOT_DRIVEN
    and (role, cause) not in RARE
}

FLOORS = FAULTS | READY | MOVES | OTHERS


def run_counted(seed: int, kind: ProfileKind = ProfileKind.STANDARD) -> tuple[RunResult, frozenset[str]]:
    """Run a seed. Return its result and the names of everything that happened.

    Changes of role, messages between nodes, and what lookups do inside of the columnar store, are included."""
    others: set[str] = set()
    original = RaftState.change_role

    def counted(self: Any, cause: Cause) -> bool:
        others.add(move_name(self.role, cause))
        return original(self, cause)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RaftState, "change_role", counted)
        note_store_lookups(patch, others)
        note_messages(patch, others)
        result = run_seed(seed, kind=kind)
    return result, frozenset(others) | {name for name, count in result.coverage.items() if count}


def never_met(
    wanted: Collection[str],
    seeds: Iterable[int],
    kind: ProfileKind,
    more_seeds: Iterable[int] = (),
    unreachable: Collection[str] = (),
) -> list[str]:
    """Run seeds until all of ``wanted`` has happened, or with ``AT_LENGTH`` all of them; return what never did.

    What is rare may not happen in any of ``seeds``. Then ``more_seeds`` are run until it has.

    ``AssertionError``: a run violates an invariant, acknowledges no write, or shows what is called ``unreachable``."""
    missing = set(wanted)
    for seed in seeds:
        result, names = run_counted(seed, kind)
        assert result.violation is None, (seed, result.violation)
        assert result.writes_acknowledged > 0
        assert not names & set(unreachable), f"seed {seed} shows what no run was expected to show: make it a floor"
        missing -= names
        if not missing and not AT_LENGTH:
            break
    for seed in more_seeds:
        if not missing:
            break
        result, names = run_counted(seed, kind)
        assert result.violation is None, (seed, result.violation)
        assert not names & set(unreachable), f"seed {seed} shows what no run was expected to show: make it a floor"
        missing -= names
    return sorted(missing)


def run_until_seen() -> Iterator[tuple[RunResult, frozenset[str]]]:
    """Run seeds until every floor is met; in `make soak` run all seeds."""
    missing = set(FLOORS)
    for seed in in_order(first_seeds().floors, SEEDS):
        found = run_counted(seed)
        yield found
        missing -= found[1]
        if not missing and not AT_LENGTH:
            return
