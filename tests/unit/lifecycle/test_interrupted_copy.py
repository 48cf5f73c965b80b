"""A copy that is interrupted, cancelled, out of space or damaged: the cluster heals by itself (T6, T7, T9)."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.host.settings import TabletSettings
from stelae.host.superblock import DataState
from stelae.lifecycle import tablet_loader
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.lifecycle.tablet_manager import FenceMismatch
from stelae.spi.copy_plan import CopyOutcome, Interruption, Partial
from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_node import (
    BASE,
    FOLLOWER,
    LEADER,
    CopyNode,
    check_complete,
    check_never,
    check_tombstone,
    lagging_disk,
    served,
    tombstone_disk,
)
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, SCHEMA, TABLET
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, CHUNKS, SERVED, VOTED, begun, lagging, network

# -- interruptions (T7, T9) ------------------------------------------------------------------------


def interrupting(after: int, ends: CopyOutcome, times: int = 1) -> Any:
    """End a run at each ``after``-th chunk, ``times`` times."""
    seen = {"chunks": 0, "times": times}

    def on_chunk(_item: str) -> CopyOutcome | None:
        seen["chunks"] += 1
        if seen["chunks"] % after == 0 and seen["times"]:
            seen["times"] -= 1
            return ends
        return None

    return on_chunk


LOST = Partial(why=Interruption.SOURCE_LOST, reason="no answer")
ENDED = Partial(why=Interruption.SESSION_ENDED, reason="the session has expired")


@pytest.mark.parametrize("ends", [LOST, ENDED])
def test_an_interrupted_copy_goes_on_with_what_it_has_as_long_as_something_arrives(ends: CopyOutcome) -> None:
    node = CopyNode(tombstone_disk(), network())
    node.network.on_chunk = interrupting(3, ends, times=10)
    assert node.ask_until_end().sequence.committed
    assert CHUNKS > 10 and len(node.network.fetched) == CHUNKS, "nothing was fetched twice"
    check_complete(node, ADOPTED)


def test_a_copy_whose_sources_are_gone_is_abandoned_and_the_next_one_fetches_the_rest() -> None:
    node = CopyNode(tombstone_disk(), network())
    node.network.on_chunk = interrupting(8, LOST)
    lose = node.network.on_chunk

    def on_chunk(item: str) -> CopyOutcome | None:
        ends = lose(item)
        if ends is not None:
            node.network.sources.clear()
        return ends

    node.network.on_chunk = on_chunk
    copy = node.ask_until_end()
    assert copy.sequence.marked and not copy.sequence.committed
    check_tombstone(node, VOTED)
    assert node.metrics.counts == ["copies_abandoned"] and node.network.slots == 1
    again = CopyNode(node.disk.clone(), network())
    assert again.ask_until_end().sequence.committed
    assert len(node.network.fetched) == 7 and len(again.network.fetched) == CHUNKS - 7
    check_complete(again, ADOPTED)


def test_a_source_with_damaged_bytes_is_not_used_again() -> None:
    """T6."""
    spoiled = {name: data[:-1] + bytes([data[-1] ^ 1]) for name, data in SERVED.contents.items()}
    damaged = type(SERVED)(SERVED.snapshot, spoiled)
    node = CopyNode(tombstone_disk(), network(leader=damaged))
    assert node.ask_until_end().sequence.committed
    assert node.network.asked[0] == LEADER and set(node.network.asked[1:]) == {FOLLOWER}
    check_complete(node, ADOPTED)
    node = CopyNode(tombstone_disk(), network(leader=damaged, follower=damaged))
    copy = node.ask_until_end()
    assert not copy.sequence.committed and "damaged" in copy.reason
    check_tombstone(node, VOTED)


def test_an_item_that_the_disk_does_not_return_is_fetched_again() -> None:
    node = CopyNode(tombstone_disk(), network())
    node.disk.faults.fail_reads(f"{LAYOUT.stage_of(TABLET)}/log/")
    assert node.ask_until_end().sequence.committed
    assert node.network.asked == [LEADER] and len(node.network.fetched) > CHUNKS
    check_complete(node, ADOPTED)


def test_a_source_that_goes_on_meanwhile_is_copied_as_it_is_then() -> None:
    node = CopyNode(tombstone_disk(), network())
    lose = interrupting(8, ENDED)

    def on_chunk(item: str) -> CopyOutcome | None:
        ends = lose(item)
        if ends is not None:
            node.network.sources[LEADER] = served(further=3)
        return ends

    node.network.on_chunk = on_chunk
    assert node.ask_until_end().sequence.committed
    check_complete(node, ADOPTED, further=3)


@pytest.mark.parametrize("room", [1.0, 1.3, 2.0, 3.0])
def test_a_full_disk_ends_the_copy_and_gets_back_what_the_stage_used(room: float) -> None:
    """T9: there was space when it began, and less and less of it was left."""
    node = CopyNode(tombstone_disk(), network())
    used = sum(len(data) for data in node.disk.tree().values())
    total = sum(item.size_bytes for item in SERVED.snapshot.items)

    def write_something_else(_item: str) -> None:
        before = node.disk.faults.capacity_bytes
        node.disk.faults.capacity_bytes = (used + int(room * total) if before is None else before) - 120

    node.network.on_chunk = write_something_else
    copy = node.ask_until_end()
    assert not copy.sequence.committed and copy.sequence.marked
    node.disk.faults.capacity_bytes = None
    again = CopyNode(node.disk.clone(), network())
    check_tombstone(again, VOTED)
    assert again.ask_until_end().sequence.committed
    check_complete(again, ADOPTED)


COPIED_BYTES = sum(item.size_bytes for item in SERVED.snapshot.items)


@pytest.mark.parametrize("free_bytes", [None, 100, COPIED_BYTES])
def test_a_replica_is_not_set_aside_for_a_copy_that_does_not_fit(free_bytes: int | None) -> None:
    """The stage is too small, or the disk: for what arrives, or for the log that is written from it."""
    node = lagging()
    used = sum(len(data) for data in node.disk.tree().values())
    if free_bytes is None:
        object.__setattr__(node.copies._env.settings, "bytes_max", 100)
    else:
        node.disk.faults.capacity_bytes = used + free_bytes
    tree = node.disk.tree()
    assert node.refusal(hosted=True) == CopyRefusalCode.TOO_LARGE
    assert node.disk.tree() == tree and TABLET in node.peers.replicas and node.network.open == set()


def test_a_replica_that_finds_no_space_for_its_tombstone_starts_again() -> None:
    """It was offline until the next start of its node, because the disk was full for a moment."""
    node = lagging()
    shut_down = node.manager.shut_down

    def fill(replica: Any) -> Any:
        node.disk.faults.capacity_bytes = sum(len(data) for data in node.disk.tree().values())
        return (yield from shut_down(replica))

    node.manager.shut_down = fill  # type: ignore[method-assign]
    copy = node.ask_until_end(hosted=True)
    assert not copy.sequence.marked and TABLET in node.peers.replicas
    assert node.closed == [LogId(TABLET, 1)], "the writer forgets what it knew of the log, and reads it again"
    node.disk.faults.capacity_bytes = None
    node.manager.shut_down = shut_down  # type: ignore[method-assign]
    assert node.ask_until_end(hosted=True).sequence.committed


def test_a_replica_that_fails_while_it_is_set_aside_is_offline_until_a_restart() -> None:
    """Rule 7."""
    node = lagging()
    shut_down, replica = node.manager.shut_down, node.peers.replicas[TABLET]

    def fails(stopped: Any) -> Any:
        last = yield from shut_down(stopped)
        node.disk.faults.capacity_bytes = sum(len(data) for data in node.disk.tree().values())
        replica.failure = "the vote cannot be saved"  # type: ignore[misc]
        return last

    node.manager.shut_down = fails  # type: ignore[method-assign]
    assert not node.ask_until_end(hosted=True).sequence.marked
    assert node.hosted == {} and "the vote cannot be saved; restart the node" in node.loader.failed[TABLET]
    assert node.loader.damaged == set()


def test_a_deletion_that_a_full_disk_interrupted_is_completed_by_the_next_copy() -> None:
    """The tombstone was durable, and the log still there: the tablet was offline until the next start of its node."""
    node = lagging()

    def fills(_operation: str, path: str) -> None:
        if "/quarantine/" in path and "consensus-meta" in path:
            raise Full("no space", path=path)

    node.disk.faults.hook = fills
    copy = node.ask_until_end(hosted=True)
    assert not copy.sequence.marked and TABLET not in node.peers.replicas
    assert node.block().data_state is DataState.DELETED and LogId(TABLET, 1) in node.wal.logs()
    node.disk.faults.hook = None
    assert node.ask_until_end().sequence.committed
    check_complete(node, ADOPTED)
    assert {"data", "wals"} <= set(node.disk.listdir(f"{LAYOUT.quarantine}/t.1"))


# -- cancelling and deleting -----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["tombstone", "never"])
def test_a_deletion_cancels_the_copy_and_leaves_no_stage(place: str) -> None:
    node = begun(place, network())
    done: list[Any] = []

    def delete(_item: str) -> CopyOutcome | None:
        if not done and not node.manager._waiting:
            node.manager.delete(TABLET, "the table was dropped", done.append, seen=None)
            assert done == []
        return None

    node.network.on_chunk = delete
    changed = {"member_type": MemberType.PRE_VOTER} if place == "never" else {}
    copy = node.ask_until_end(**changed)
    assert done == [None] and not copy.sequence.committed and "the table was dropped" in copy.control.why_cancelled
    assert not node.disk.exists(LAYOUT.stage_of(TABLET))
    if place == "never":
        check_never(node)
    else:
        check_tombstone(node, VOTED)
        assert node.block().removed and node.refusal() == CopyRefusalCode.REMOVED, "no leader brings it back"


def test_a_cancelled_copy_keeps_its_stage_for_the_next_one() -> None:
    node = CopyNode(tombstone_disk(), network())
    chunks: list[str] = []

    def cancel(item: str) -> CopyOutcome | None:
        chunks.append(item)
        if len(chunks) == 8:
            node.copies.cancel(TABLET, "by an operator")
        return None

    node.network.on_chunk = cancel
    assert not node.ask_until_end().sequence.committed
    check_tombstone(node, VOTED)
    node.network.on_chunk = lambda _item: None
    before = len(node.network.fetched)
    assert node.ask_until_end().sequence.committed
    assert (
        len(node.network.fetched)
        == before + sum(-(-len(data) // node.network.chunk_bytes) for data in SERVED.contents.values()) - before
    )
    check_complete(node, ADOPTED)


def test_nothing_else_runs_on_a_tablet_that_is_being_copied() -> None:
    node = CopyNode(tombstone_disk(), network())
    refused: list[Any] = []

    def create(_item: str) -> CopyOutcome | None:
        node.manager.create(TabletSettings(id=TABLET, schema=SCHEMA, members=()), refused.append)
        return None

    node.network.on_chunk = create
    assert node.ask_until_end().sequence.committed
    assert refused and all("is being copied" in str(error) for error in refused)


def test_a_session_is_kept_until_the_replica_hears_its_leader() -> None:
    """Rule 25: otherwise the log that follows the copy could be collected before the leader sends it."""
    node = CopyNode(tombstone_disk(), network())
    host = node._host

    def silent(recovered: Any) -> None:
        host(recovered)
        node.node.replicas[TABLET].status.leader = None

    node.node.host = silent
    node.ask()
    for _ in range(3):
        assert node.network.open == {LEADER}
        node.pass_time()
    node.node.replicas[TABLET].status.leader = LEADER
    node.pass_time()
    assert node.network.open == set()


def test_the_last_op_id_is_kept_from_the_tombstone_to_the_end() -> None:
    """Rule 19: whatever the state, the superblock has the last op id, or a log that has reached it."""
    node = CopyNode(tombstone_disk(), network())
    seen: list[object] = []
    node.network.on_chunk = lambda _item: seen.append((node.block().data_state, node.block().tombstone))
    node.ask_until_end()
    assert set(seen) == {(DataState.COPYING, LAST)}
    assert BASE > LAST


def test_a_copied_log_has_a_generation_of_its_own() -> None:
    """Rule 22: each copy that begins, also one that was abandoned, has the next generation."""
    node = CopyNode(tombstone_disk(), network())
    node.network.on_chunk = lambda _item: (node.network.sources.clear(), LOST)[1]
    node.ask_until_end()
    assert node.block().generation == 2
    again = CopyNode(node.disk.clone(), network())
    assert again.ask_until_end().sequence.committed
    assert again.block().generation == 3
    check_complete(again, ADOPTED)


def test_an_item_that_is_damaged_in_the_stage_is_fetched_again() -> None:
    """T6: the disk lost a bit after the item had its digest."""
    node = CopyNode(tombstone_disk(), network())
    damaged: list[str] = []

    def on_chunk(item: str) -> CopyOutcome | None:
        if not damaged and item.startswith("rows/"):
            damaged.append("log/21-23")
            node.disk.damage(f"{LAYOUT.stage_of(TABLET)}/log/21-23", 40, 1)
        return None

    node.network.on_chunk = on_chunk
    assert node.ask_until_end().sequence.committed and damaged
    assert len(node.network.fetched) > CHUNKS
    check_complete(node, ADOPTED)


def test_what_a_copy_has_left_and_cannot_be_removed_keeps_no_tablet_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_arguments: Any) -> None:
        raise StorageError("input/output error")

    monkeypatch.setattr(tablet_loader, "remove_stage", fail)
    again = CopyNode(lagging_disk(), network())
    assert TABLET in again.recovered and TABLET not in again.loader.failed


def test_a_tombstone_learns_that_its_table_is_deleted_for_good() -> None:
    """A leader that does not know it yet could have the tablet copied here again."""
    node = CopyNode(tombstone_disk(), network())
    done: list[Any] = []
    node.manager.end_deletion(TABLET, done.append, removed=True)
    node.manager.end_deletion(TabletId("never"), done.append, removed=True)
    assert done == [None, None] and node.block().removed
    assert node.refusal() == CopyRefusalCode.REMOVED


def test_a_deletion_whose_fence_does_not_hold_cancels_no_copy() -> None:
    """It cancelled the copy of the rows, and only then saw that the master knew another config."""
    node = lagging()
    cancelled: list[TabletId] = []
    node.manager.cancel_copy = lambda tablet, _why: bool(cancelled.append(tablet)) or True
    answers: list[Any] = []
    node.manager.delete(TABLET, "evicted", answers.append, seen=OpId(9, 9))
    assert isinstance(answers.pop(), FenceMismatch) and cancelled == []


def test_an_eviction_waits_for_a_copy_over_a_tombstone_instead_of_cancelling_it() -> None:
    """Its fence is on the config of a replica, and there is none yet. A dropped table has no such fence."""
    node = CopyNode(tombstone_disk(), network())
    refused: list[Any] = []

    def evict(_item: str) -> CopyOutcome | None:
        node.manager.delete(TABLET, "evicted", refused.append, seen=OpId(9, 9))
        return None

    node.network.on_chunk = evict
    assert node.ask_until_end().sequence.committed
    assert refused and all("is being copied" in str(error) for error in refused)


def test_a_deletion_that_is_refused_leaves_the_stage_of_an_offline_tablet() -> None:
    """The stage was removed before the fence was checked."""
    node = CopyNode(lagging_disk(), network())
    del node.recovered[TABLET]
    node.disk.make_directory(LAYOUT.stage_of(TABLET))
    node.disk.replace(f"{LAYOUT.stage_of(TABLET)}/manifest", b"what has arrived")
    answers: list[Any] = []
    tree = node.disk.tree()
    node.manager.delete(TABLET, "evicted", answers.append, seen=OpId(9, 9))
    assert isinstance(answers.pop(), FenceMismatch) and node.disk.tree() == tree
    node.manager.delete(TABLET, "dropped", answers.append, seen=None)
    assert answers == [None] and not node.disk.exists(LAYOUT.stage_of(TABLET))
