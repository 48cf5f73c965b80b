"""Floors: over a hundred seeds everything happens that can; nothing is violated."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stelae.sim.plan import FaultKind
from stelae.sim.report import Totals
from stelae.sim.run import run_seed
from stelae.spi.consensus import Ready, Role
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.transitions import TRANSITIONS, Cause

pytestmark = pytest.mark.xdist_group("coverage of tablets")
"""One process runs the seeds, once for all tests of this file."""

SEEDS = range(1, 101)

CANNOT_OCCUR_YET = {Cause.MADE_VOTER, Cause.MADE_LEARNER, Cause.REMOVED}
"""Members are fixed."""

NOT_DRIVEN = Cause.STEP_DOWN
"""Asked for only when a replica is stopped in good order; runs end otherwise."""

RARE = {(Role.CANDIDATE, Cause.PERSIST_FAILED)}
"""A follower must lose its leader while an append of it is about to fail: once in some hundreds."""

READY_FIELDS_EXCEPTED = {"fatal", "copy_requests"}

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
    "metric.consensus_messages_refused",
    "network.duplicated",
    "network.lost",
    "network.peer_lost",
    "network.reordered",
    "node.given_up",
    "node.log_damaged",
    "node.log_older",
    "node.power_lost_within",
    "node.start_refused",
    "read.before_serving",
    "restart.idle",
    "run.fault_within",
    "run.partly_known",
    "run.partly_stale",
    "run.regrouped",
    "run.several",
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
    "scribe.collected",
    "scribe.failed",
    "scribe.refused",
    "scribe.replaced",
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
    "writer.unknown",
}


class Seen:
    """What a hundred seeds have shown."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.moves: Counter[tuple[Role, Cause]] = Counter()


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Run the seeds once, with every change of role counted."""
    found = Seen()
    original = RaftState.change_role

    def counted(self: Any, cause: Cause) -> bool:
        found.moves[self.role, cause] += 1
        return original(self, cause)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RaftState, "change_role", counted)
        for seed in SEEDS:
            found.totals.add(run_seed(seed))
    return found


def test_no_seed_violates_an_invariant(seen: Seen) -> None:
    assert seen.totals.failed == []
    assert seen.totals.events >= 5_000 * len(SEEDS)


def test_every_kind_of_fault_bites(seen: Seen) -> None:
    missing = [k for k in FaultKind if not seen.totals.coverage().get(f"fault.{k}")]
    assert missing == []


def test_every_field_of_a_ready_is_used(seen: Seen) -> None:
    fields = set(Ready.__struct_fields__) - READY_FIELDS_EXCEPTED
    missing = [f for f in sorted(fields) if not seen.totals.coverage().get(f"ready.{f}")]
    assert missing == []


def test_every_row_of_the_transition_table_that_can_occur_does(seen: Seen) -> None:
    reachable = {
        (role, cause)
        for cause, row in TRANSITIONS.items()
        for role, target in row.items()
        if role in (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)
        and target is not None
        and cause not in CANNOT_OCCUR_YET
        and cause is not NOT_DRIVEN
    }
    assert sorted(reachable - RARE - set(seen.moves)) == []


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_everything_else_worth_counting_happens(seen: Seen, name: str) -> None:
    assert seen.totals.coverage().get(name, 0) > 0
