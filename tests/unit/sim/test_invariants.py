"""Every invariant accepts legal facts, and reports violations under its own name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from stelae.sim.history import ClientAction, HistoryRow
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.invariants import INVARIANTS
from stelae.spi.consensus import ReadReady, Role
from stelae.spi.ids import OpId
from tests.unit.sim.consensus_stories import (
    FAULTY,
    gets_stale_message,
    read,
    requests_read_index,
    same_op_id_other_body,
    two_leaders,
)
from tests.unit.sim.copy_stories import FAULTLESS_COPIES, copying
from tests.unit.sim.epoch_stories import FAULTLESS_EPOCHS
from tests.unit.sim.leader_change_stories import FAULTLESS_LEADER_CHANGES
from tests.unit.sim.member_stories import (
    caretaker_that_serves_nobody,
    creations_that_are_cut_short,
    one_change_after_the_other,
)
from tests.unit.sim.rig import Rig, applied, begin, committed, done, entry, history, write
from tests.unit.sim.store_stories import FAULTLESS


@pytest.mark.parametrize(
    ("invariant", "story"),
    [(name, story) for name, stories in FAULTY.items() for story in stories],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_invariant_reports_its_violations(invariant: str, story: Callable[[Rig], None]) -> None:
    rig = Rig()
    story(rig)
    assert rig.violated == invariant


def test_the_creation_of_an_empty_replica_is_not_taken_for_the_end_of_an_undone_copy() -> None:
    """A damaged item was left in the stage, and the invariant about copied items blamed the new replica."""
    rig = Rig()
    rig.world.copies = True
    node = rig.world.nodes[2]
    rig.facts.superblock_saved(node, copying(None), None, ())
    rig.facts.replica_on_disk(node, ReplicaOnDisk.BEGUN)
    assert node.block is None


def test_every_invariant_has_a_story_that_violates_it() -> None:
    assert set(FAULTY) == {invariant.name for invariant in INVARIANTS}


# -- legal stories ---------------------------------------------------------------------------------


def test_a_read_index_of_a_serving_leader_is_legal_and_so_is_an_old_message_without_effect() -> None:
    rig = Rig()
    committed(rig, entry(1, 1), entry(1, 2))
    requests_read_index(rig)
    requests_read_index(rig, token=2)
    rig.ready(0, reads_ready=(ReadReady(1, 2),))
    gets_stale_message(rig)
    assert rig.violated is None


def test_changes_of_members_one_after_the_other_are_legal() -> None:
    rig = Rig()
    one_change_after_the_other(rig)
    assert rig.violated is None


def test_creations_that_leave_nothing_or_a_whole_replica_are_legal() -> None:
    rig = Rig()
    creations_that_are_cut_short(rig)
    assert rig.violated is None


def test_a_caretaker_that_serves_nobody_is_legal() -> None:
    rig = Rig()
    caretaker_that_serves_nobody(rig)
    assert rig.violated is None


@pytest.mark.parametrize("story", FAULTLESS_LEADER_CHANGES, ids=lambda story: story.__name__)
def test_a_change_of_a_leader_with_a_reason_is_legal(story: Callable[[Rig], None]) -> None:
    rig = Rig()
    story(rig)
    assert rig.violated is None


@pytest.mark.parametrize("story", FAULTLESS_COPIES, ids=lambda story: story.__name__)
def test_a_copy_and_a_deletion_with_a_reason_are_legal(story: Callable[[Rig], None]) -> None:
    rig = Rig()
    story(rig)
    assert rig.violated is None


def test_an_ordinary_history_violates_nothing() -> None:
    rig = Rig()
    history(rig)
    for position in (1, 2):
        for index in (1, 2):
            rig.apply(position, entry(1, index), applied(OpId(1, index), index))
    read(rig, "b")
    rig.facts.at_end()
    assert rig.violated is None


@pytest.mark.parametrize("story", [*FAULTLESS, *FAULTLESS_EPOCHS], ids=lambda story: story.__name__)
def test_an_ordinary_history_of_a_store_violates_nothing(story: Callable[[Rig], None]) -> None:
    rig = Rig()
    story(rig)
    assert rig.facts.violation is None


def test_a_read_that_overlaps_a_write_may_see_either_state() -> None:
    for seen in ("a", "b"):
        rig = Rig()
        committed(rig, entry(1, 1), entry(1, 2))
        first = begin(rig, write(1, value="a"), 1)
        rig.apply(0, entry(1, 1), applied(OpId(1, 1), 1))
        rig.facts.answered(first, done(at=1))
        begin(rig, write(2, value="b"), 2)
        reading = begin(rig, write(0, ClientAction.READ), 3)
        rig.apply(0, entry(1, 2), applied(OpId(1, 2), 2))
        rig.facts.answered(reading, done(value=seen))
        assert rig.violated is None, seen


def test_rows_of_an_operation_change_their_keys_together_and_the_last_row_of_a_key_remains() -> None:
    rig = Rig()
    committed(rig, entry(1, 1))
    operation = write()
    operation.rows = (HistoryRow(1, "a"), HistoryRow(2, "b"), HistoryRow(1, "c"), HistoryRow(2, "d"))
    begin(rig, operation, 1)
    request = msgspec.structs.replace(applied(OpId(1, 1)), errors=((3, "NOT_FOUND"),))
    rig.apply(0, entry(1, 1), request)
    assert rig.facts.expected_rows() == {1: ("c",), 2: ("b",)}
    read(rig, "c")
    assert rig.violated is None
    read(rig, "a")
    assert rig.violated == "linearizability"


def test_a_repetition_that_is_skipped_and_gets_the_same_answer_is_legal() -> None:
    rig = Rig()
    committed(rig, entry(1, 1), entry(1, 2))
    rig.apply(0, entry(1, 1), applied(OpId(1, 1)))
    rig.facts.answered(write(), done(at=1))
    rig.apply(0, entry(1, 2), applied(OpId(1, 2), skipped=True))
    rig.facts.answered(write(), done(at=1))
    assert rig.violated is None


@pytest.mark.parametrize(("sequence", "violated"), [(2, None), (3, "exactly_once")])
def test_an_operation_that_its_client_had_given_up_is_skipped(sequence: int, violated: str | None) -> None:
    """Its request comes late, after one that says so."""
    rig = Rig()
    committed(rig, entry(1, 1), entry(1, 2))
    begin(rig, write(4), 1)
    rig.apply(0, entry(1, 1), applied(OpId(1, 1), 4, first_incomplete=3))
    rig.apply(0, entry(1, 2), applied(OpId(1, 2), sequence, skipped=True))
    assert rig.violated == violated


def test_a_follower_may_replace_its_suffix_and_a_deposed_leader_too() -> None:
    rig = Rig()
    rig.append(0, entry(1, 1), entry(1, 2))
    rig.lead(0, 1)
    rig.status(0, Role.FOLLOWER, 2)
    rig.append(0, entry(2, 2), replace_from=2)
    assert rig.violated is None


def test_the_first_violation_is_kept() -> None:
    rig = Rig()
    two_leaders(rig)
    same_op_id_other_body(rig)
    assert rig.violated == "election_safety"
