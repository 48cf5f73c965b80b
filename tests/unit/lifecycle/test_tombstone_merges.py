"""The voter of a copy merges the metadata of the source (durability rule 20), and is held when the copy ends."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.superblock import DataState, Superblock
from stelae.host.tombstone_voter import TombstoneVoter
from stelae.spi.consensus import HardState
from stelae.spi.errors import Full, StorageError, SyncFailed
from stelae.spi.ids import ZERO, OpId, TabletId
from stelae.spi.members import TabletConfig
from tests.unit.lifecycle.disk_node import LAYOUT
from tests.unit.lifecycle.tombstone_world import CANDIDATE, CONFIG, FAILING, RIVAL, World, fail_at, record, vote_request


@pytest.fixture
def world() -> World:
    return World()


NEWER = TabletConfig(op_id=OpId(5, 40), members=())


def merge(world: World, term: int, config: TabletConfig = NEWER) -> list[Any]:
    """Merge at the voter of t1; return what ``done`` is called with, which may come later."""
    ends: list[Any] = []

    def found(voter: TombstoneVoter | None) -> None:
        assert voter is not None
        voter.merge(term, config, ends.append)

    world.tombstones.voter(TabletId("t1"), found)
    return ends


def saved(world: World) -> tuple[HardState, OpId]:
    found = ConsensusMetadata(world.disk, LAYOUT, TabletId("t1")).load()
    return found.hard_state, found.committed_config.op_id


@pytest.mark.parametrize("voted", [False, True])
@pytest.mark.parametrize("source_term", [2, 3, 4, 5, 6])
def test_the_metadata_of_the_source_are_merged_with_what_the_voter_promised(
    world: World, voted: bool, source_term: int
) -> None:
    """T3: lower, equal and higher terms, with and without a vote in term 4 (3 without)."""
    if voted:
        world.ask("t1", CANDIDATE, vote_request(4))
        world.work()
    before = record(world, "t1")
    ends = merge(world, source_term)
    world.work()
    assert ends == [None]
    expected = before if source_term <= before.term else HardState(source_term, None)
    assert saved(world) == (expected, NEWER.op_id)


def test_a_vote_that_is_given_while_the_merge_is_saved_has_the_new_config_and_survives(world: World) -> None:
    ends = merge(world, 5)
    world.due.pop(0)()  # the files are read, and the save of the merge begins
    world.ask("t1", CANDIDATE, vote_request(6, last=OpId(5, 50)))
    assert ends == [] and world.answers() == []
    world.work()
    assert ends == [None] and [answer.refusal for answer in world.answers()] == [None]
    assert saved(world) == (HardState(6, CANDIDATE), NEWER.op_id)


def test_a_vote_that_is_on_its_way_to_the_disk_is_saved_before_the_merge(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4))
    world.due.pop(0)()
    ends = merge(world, 4)
    world.work()
    assert ends == [None] and saved(world) == (HardState(4, CANDIDATE), NEWER.op_id)


def test_a_merge_that_finds_no_space_fails_and_the_voter_goes_on_with_the_old_config_and_the_new_term(
    world: World,
) -> None:
    merge(world, 3, CONFIG)
    world.work()
    world.disk.faults.capacity_bytes = 0
    ends = merge(world, 5)
    world.work()
    assert [type(end) for end in ends] == [Full] and record(world, "t1") == HardState(3, None)
    world.disk.faults.capacity_bytes = None
    world.pass_time()
    assert len(ends) == 1 and saved(world) == (HardState(5, None), ZERO)
    world.ask("t1", CANDIDATE, vote_request(5))
    world.work()
    assert [answer.refusal for answer in world.answers()] == [None]


@FAILING
def test_a_merge_whose_sync_fails_gets_the_error_and_can_be_repeated_when_the_disk_is_back(
    world: World, failing: str
) -> None:
    """The file may have the new config, and no older one may replace it: so the new one is saved again."""
    merge(world, 3, CONFIG)
    world.work()
    fail_at(world, failing)
    ends = merge(world, 5)
    world.work()
    ends += merge(world, 5)
    world.ask("t1", CANDIDATE, vote_request(6))
    world.work()
    assert [type(end) for end in ends] == [SyncFailed, StorageError] and world.answers() == []
    world.disk.faults.hook = None
    world.pass_time()
    assert len(ends) == 2 and saved(world) == (HardState(5, None), NEWER.op_id)
    ends = merge(world, 5)
    world.work()
    assert ends == [None]


def test_a_merge_behind_a_vote_whose_sync_fails_fails_too_and_leaves_the_old_config(world: World) -> None:
    merge(world, 3, CONFIG)
    world.work()
    world.ask("t1", CANDIDATE, vote_request(4))
    ends = merge(world, 5)
    fail_at(world, "create")
    world.work()
    assert [type(end) for end in ends] == [SyncFailed] and world.answers() == []
    world.disk.faults.hook = None
    world.pass_time()
    assert [answer.term for answer in world.answers()] == [4] and saved(world) == (HardState(5, None), ZERO)


def test_a_merge_that_waits_fails_when_its_voter_is_closed(world: World) -> None:
    world.ask("t1", CANDIDATE, vote_request(4))
    world.due.pop(0)()
    ends = merge(world, 5)
    world.peers.voters[TabletId("t1")].close()
    assert [type(end) for end in ends] == [StorageError]
    world.work()
    assert len(ends) == 1


def test_a_voter_that_is_held_gets_no_message_and_is_not_loaded_again(world: World) -> None:
    """Its replica is about to start with what the voter has saved: a vote after that would be given twice."""
    tablet = TabletId("t1")
    world.ask("t1", CANDIDATE, vote_request(4))  # Its files are still being read when the hold begins.
    world.tombstones.hold(tablet)
    world.work()
    assert world.answers() == [] and not world.peers.voters and record(world, "t1") == HardState(3, None)
    world.ask("t1", CANDIDATE, vote_request(4))
    assert world.due == []
    world.tombstones.release(tablet)
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    assert [answer.refusal for answer in world.answers()] == [None]


def test_a_first_copy_has_promised_nothing_and_does_not_vote(world: World) -> None:
    """A tombstone at 0.0 would vote like an empty replica, although a former replica may have been lost (rule 19)."""
    world.save(Superblock(tablet_id=TabletId("t1"), data_state=DataState.COPYING, tombstone=None))
    world.ask("t1", CANDIDATE, vote_request(4))
    world.work()
    assert world.answers() == [] and not world.peers.voters


def test_a_copy_over_a_tombstone_votes_with_the_last_op_id_of_the_tombstone(world: World) -> None:
    world.save(Superblock(tablet_id=TabletId("t1"), data_state=DataState.COPYING, tombstone=OpId(2, 20)))
    world.ask("t1", CANDIDATE, vote_request(4, last=OpId(2, 19)))
    world.ask("t1", RIVAL, vote_request(5, last=OpId(2, 20)))
    world.work()
    behind, granted = world.answers()
    assert behind.refusal is not None and granted.refusal is None
