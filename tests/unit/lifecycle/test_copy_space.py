"""A copy that finds too little space has removed for it what may go: stages, then superseded data in quarantine."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from stelae.host.metadata_files import save
from stelae.host.superblock import SUPERBLOCK, DataState
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.lifecycle.copy_items import ItemKind, kind_of
from stelae.lifecycle.copy_stage import CopyStage
from stelae.lifecycle.quarantine import DeletionRecord, list_quarantine, make_directory, save_record
from stelae.lifecycle.stage_limits import list_stages
from stelae.spi.errors import StorageError
from stelae.spi.ids import OpId, TabletId
from tests.unit.lifecycle.copy_node import CopyNode, check_complete, check_tombstone, tombstone_disk
from tests.unit.lifecycle.disk_node import LAYOUT, OTHER, TABLET
from tests.unit.lifecycle.test_removal_pool import removing_in
from tests.unit.lifecycle.test_rows_copy import ask as ask_for_rows
from tests.unit.lifecycle.test_rows_copy import state, witness, witness_disk
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, SERVED, VOTED, lagging, network

ITEMS = SERVED.snapshot.items
NEEDED_BYTES = sum(item.size_bytes * (1 if kind_of(item.name) is ItemKind.ROWS else 2) for item in ITEMS)
METADATA_BYTES = 30_000
"""More than what a deletion and a copy write besides: the superblocks, their copies, the log of the next generation."""
GONE = TabletId("gone")


def quarantined(node: CopyNode, tablet: TabletId, size_bytes: int, deleted_us: int) -> str:
    """Put data into the quarantine, as the deletion of a replica leaves it."""
    place = make_directory(node.disk, LAYOUT, tablet)
    about = DeletionRecord(tablet_id=tablet, table_name="the table", deleted_us=deleted_us, reason="test")
    save_record(node.disk, f"{LAYOUT.root}/{place}", about)
    node.disk.make_directory(f"{LAYOUT.root}/{place}/data")
    node.disk.replace(f"{LAYOUT.root}/{place}/data/rows", bytes(size_bytes))
    return place.rpartition("/")[2]


def stage(node: CopyNode, tablet: TabletId, size_bytes: int, used_us: int = 1) -> None:
    """Leave what an interrupted copy of a tablet has fetched."""
    snapshot = msgspec.structs.replace(SERVED.snapshot, tablet_id=tablet)
    CopyStage(node.disk, LAYOUT, tablet, 1 << 30).prepare(snapshot, used_us)
    node.disk.replace(f"{LAYOUT.stage_of(tablet)}/log/rest", bytes(size_bytes))


def leave_free(node: CopyNode, free_bytes: int, *, until_set_aside: bool = True) -> None:
    """Limit the disk: until a replica is set aside, because what is then written has no part in the decision."""
    if until_set_aside:
        set_aside = node.manager.set_aside

        def lifted(replica: Any, reason: str) -> Any:
            node.disk.faults.capacity_bytes = None
            return set_aside(replica, reason)

        node.manager.set_aside = lifted  # type: ignore[method-assign,assignment]
    node.disk.faults.capacity_bytes = sum(map(len, node.disk.tree().values())) + free_bytes


def kept(node: CopyNode) -> set[str]:
    """The names in quarantine, and the tablets with a stage."""
    names = {one.name for one in list_quarantine(node.disk, LAYOUT)}
    return names | {f"stage {one.tablet_id}" for one in list_stages(node.disk, LAYOUT)}


def refused(node: CopyNode, **changed: Any) -> str:
    """Ask for a copy that does not fit; return why. It changed nothing."""
    tree = node.disk.tree()
    assert node.refusal(**changed) == CopyRefusalCode.TOO_LARGE
    assert node.disk.tree() == tree and node.network.open == set()
    return node.copies.last_refusal(TABLET)


def test_a_replica_that_was_replaced_before_is_replaced_again_on_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    """The quarantine held as much as the replica, and the copy was refused until the quarantine was too old."""
    caplog.set_level(logging.INFO)
    node = lagging()
    quarantined(node, TABLET, NEEDED_BYTES + METADATA_BYTES, 5)
    leave_free(node, 10, until_set_aside=False)
    assert node.ask_until_end(hosted=True).sequence.committed
    check_complete(node, ADOPTED)
    assert [one.about.deleted_us for one in list_quarantine(node.disk, LAYOUT) if one.about] == [0], (
        "set aside just now"
    )
    assert f"removed for a copy of tablet={TABLET} needed_bytes={NEEDED_BYTES} free_bytes=10: quarantine name=t.1" in (
        caplog.text
    )


def test_stages_go_first_then_the_oldest_data_in_quarantine_and_no_more_than_needed() -> None:
    node, half = lagging(), NEEDED_BYTES // 2
    stage(node, GONE, 1000)
    quarantined(node, OTHER, half, 7)
    oldest, newest = quarantined(node, OTHER, half, 5), quarantined(node, TABLET, half, 9)
    assert kept(node) == {f"stage {GONE}", f"{OTHER}.1", oldest, newest}
    leave_free(node, NEEDED_BYTES - 500)
    assert node.ask_until_end(hosted=True).sequence.committed
    assert kept(node) - {f"{TABLET}.2"} == {f"{OTHER}.1", oldest, newest}, "the stage was enough"
    again = lagging()
    for tablet, deleted_us in ((OTHER, 7), (OTHER, 5), (TABLET, 9)):
        quarantined(again, tablet, NEEDED_BYTES // 4, deleted_us)
    stage(again, GONE, 100)
    leave_free(again, 10)
    assert again.ask_until_end(hosted=True).sequence.committed
    assert kept(again) - {f"{TABLET}.2"} == {newest}, "the stage, and two of them"


def test_the_oldest_stage_goes_first_and_the_stage_of_the_copy_itself_stays() -> None:
    node = lagging()
    stage(node, GONE, 3000, used_us=9)
    stage(node, OTHER, 3000, used_us=5)
    stage(node, TABLET, 0)
    held = next(one.size_bytes for one in list_stages(node.disk, LAYOUT) if one.tablet_id == TABLET)
    leave_free(node, NEEDED_BYTES - held - 1)
    node.network.on_chunk = lambda _item: seen.append(kept(node))  # type: ignore[func-returns-value]
    seen: list[set[str]] = []
    node.ask_until_end(hosted=True)
    assert f"stage {OTHER}" not in seen[0] and {f"stage {GONE}", f"stage {TABLET}"} <= seen[0]


def test_nothing_is_removed_if_that_would_not_be_enough() -> None:
    node = lagging()
    stage(node, GONE, 100)
    quarantined(node, TABLET, 100, 5)
    leave_free(node, 10)
    sizes = sum(one.size_bytes for one in (*list_stages(node.disk, LAYOUT), *list_quarantine(node.disk, LAYOUT)))
    why = refused(node, hosted=True)
    assert f"needs {NEEDED_BYTES} more bytes on the disk, of which 10 are free" in why
    assert f"superseded data in quarantine, have {sizes}, which is not enough" in why


def test_a_copy_above_the_limit_of_stages_removes_nothing() -> None:
    node = lagging()
    quarantined(node, TABLET, 10 * NEEDED_BYTES, 5)
    object.__setattr__(node.copies._env.settings, "bytes_max", 100)
    leave_free(node, 10)
    assert refused(node, hosted=True).endswith("raise [stage] bytes_max")


def test_the_last_data_of_a_deleted_replica_stay() -> None:
    """Rule 23: a copy that is abandoned goes back to that tombstone, which can be restored."""
    node = CopyNode(tombstone_disk(), network())
    assert node.block().quarantine == f"quarantine/{TABLET}.1"
    node.disk.replace(f"{LAYOUT.quarantine}/{TABLET}.1/data/more", bytes(2 * NEEDED_BYTES))
    leave_free(node, 10)
    assert "so nothing can be removed for it" in refused(node)
    check_tombstone(node, VOTED)
    node.disk.faults.capacity_bytes = None
    superseded = quarantined(node, TABLET, NEEDED_BYTES + METADATA_BYTES, 5)
    leave_free(node, 10)
    node.network.on_chunk = lambda _item: seen.append(kept(node))  # type: ignore[func-returns-value]
    seen: list[set[str]] = []
    assert node.ask_until_end().sequence.committed
    assert seen[0] == {f"{TABLET}.1", f"stage {TABLET}"} and superseded == f"{TABLET}.2"


@pytest.mark.parametrize("block", ["lost", "unreadable", "named"])
def test_data_that_may_be_the_last_ones_of_another_tablet_stay(block: str) -> None:
    node = lagging()
    name = quarantined(node, OTHER, 2 * NEEDED_BYTES, 5)
    path = LAYOUT.superblock_of(OTHER)
    if block == "lost":
        node.disk.remove(path)
    elif block == "unreadable":
        node.disk.replace(path, b"garbage")
    else:
        save_named(node, node.block(OTHER), name)
    leave_free(node, 10)
    assert "so nothing can be removed" in refused(node, hosted=True)


def save_named(node: CopyNode, block: Any, name: str) -> None:
    named = msgspec.structs.replace(
        block, data_state=DataState.DELETED, tombstone=OpId(1, 9), quarantine=f"quarantine/{name}"
    )
    save(node.disk, SUPERBLOCK, LAYOUT.superblock_of(OTHER), named)


def test_a_log_that_a_conversion_replaced_goes_and_a_foreign_file_stays() -> None:
    node = lagging()
    node.disk.make_directory(f"{LAYOUT.quarantine}/wals-shared.1")
    node.disk.replace(f"{LAYOUT.quarantine}/wals-shared.1/log", bytes(NEEDED_BYTES + METADATA_BYTES))
    node.disk.replace(f"{LAYOUT.quarantine}/dump.1", bytes(NEEDED_BYTES))
    leave_free(node, 10)
    assert node.ask_until_end(hosted=True).sequence.committed
    assert kept(node) == {"dump.1", f"{TABLET}.1"}


def test_what_another_operation_uses_is_passed_over() -> None:
    node = lagging()
    quarantined(node, OTHER, NEEDED_BYTES, 5)
    node.manager._in_progress[OTHER] = "deleted"
    leave_free(node, 10)
    assert "so nothing can be removed" in refused(node, hosted=True)
    del node.manager._in_progress[OTHER]
    node.disk.faults.capacity_bytes = None
    quarantined(node, TABLET, NEEDED_BYTES + METADATA_BYTES, 9)
    leave_free(node, 10)
    purge_steps, taken = node.manager.purge_steps, list[str]()

    def begins_meanwhile(name: str, **known: Any) -> Any:
        node.manager._in_progress[OTHER] = "deleted"
        taken.append(name)
        return purge_steps(name, **known)

    node.manager.purge_steps = begins_meanwhile  # type: ignore[method-assign]
    assert node.ask_until_end(hosted=True).sequence.committed
    assert taken == [f"{OTHER}.1", f"{TABLET}.1"] and f"{OTHER}.1" in kept(node)


def test_data_that_a_superblock_names_by_now_are_not_removed(caplog: pytest.LogCaptureFixture) -> None:
    """The directory of a deletion was listed before its tombstone was written."""
    node = lagging()
    quarantined(node, OTHER, NEEDED_BYTES, 5)
    leave_free(node, 10)
    purge_steps = node.manager.purge_steps

    def deleted_meanwhile(name: str, **known: Any) -> Any:
        node.disk.remove_tree(f"{LAYOUT.quarantine}/{name}")
        node.disk.faults.capacity_bytes = None
        node.base.delete(OTHER)
        leave_free(node, 10)
        return purge_steps(name, **known)

    node.manager.purge_steps = deleted_meanwhile  # type: ignore[method-assign]
    assert node.refusal(hosted=True) == CopyRefusalCode.TOO_LARGE
    assert node.block(OTHER).quarantine == f"quarantine/{OTHER}.1" and kept(node) == {f"{OTHER}.1"}
    assert "the last data of a deleted replica" in caplog.text and TABLET in node.peers.replicas


def test_a_directory_that_cannot_be_removed_is_no_end_and_a_cancelled_copy_removes_no_more() -> None:
    node = lagging()
    first = quarantined(node, OTHER, NEEDED_BYTES, 5)
    second = quarantined(node, TABLET, NEEDED_BYTES + METADATA_BYTES, 6)
    leave_free(node, 10)

    def fails(operation: str, path: str) -> None:
        if operation == "remove" and first in path:
            raise StorageError("input/output error", path=path)

    node.disk.faults.hook = fails
    assert node.ask_until_end(hosted=True).sequence.committed
    left = {one.name: one.about for one in list_quarantine(node.disk, LAYOUT)}
    assert left.keys() == {first, second}, "the second one was purged, and a new one has its name"
    assert left[second] is not None and left[second].deleted_us == 0
    node = lagging()
    half = NEEDED_BYTES // 2
    first, second = quarantined(node, OTHER, half, 5), quarantined(node, OTHER, half, 6)
    leave_free(node, 10)
    node.disk.faults.hook = lambda operation, path: (
        node.copies.cancel(TABLET, "an operator") and None if operation == "remove" and first in path else None
    )
    copy = node.ask_until_end(hosted=True)
    assert copy.reason == "an operator" and TABLET in node.peers.replicas
    assert kept(node) == {second}


def test_the_guards_are_applied_again_before_something_is_removed() -> None:
    """Rule 17: a refused request changes no byte."""
    node = lagging()
    quarantined(node, TABLET, 2 * NEEDED_BYTES, 5)
    leave_free(node, 10)
    space_left = node.disk.space_left

    def learns_a_term(path: str) -> int:
        vars(node.peers.replicas[TABLET].status).update(term=99)
        return space_left(path)

    node.disk.space_left = learns_a_term  # type: ignore[method-assign]
    tree = node.disk.tree()
    assert node.refusal(hosted=True) == CopyRefusalCode.BAD_TERM
    assert node.disk.tree() == tree


def test_nothing_is_removed_in_the_pool_that_votes_use() -> None:
    node = lagging()
    quarantined(node, OTHER, NEEDED_BYTES // 4, 5)
    quarantined(node, TABLET, NEEDED_BYTES, 6)
    stage(node, GONE, 100)
    pools = removing_in(node, LAYOUT.quarantine, LAYOUT.stage_of(GONE))
    leave_free(node, 10)
    assert node.ask_until_end(hosted=True).sequence.committed
    assert f"{OTHER}.1" not in kept(node) and pools == {"scans", "copies"}


# -- rows for a witness ----------------------------------------------------------------------------


def witness_on_a_full_disk(purgeable_bytes: int) -> CopyNode:
    node = witness(witness_disk())
    quarantined(node, OTHER, purgeable_bytes, 5)
    leave_free(node, 10, until_set_aside=False)
    return node


def test_rows_for_a_witness_have_superseded_data_removed() -> None:
    node = witness_on_a_full_disk(NEEDED_BYTES + METADATA_BYTES)
    assert ask_for_rows(node).committed and kept(node) == set()
    assert state(node.disk) == "complete"


def test_rows_that_do_not_fit_remove_nothing() -> None:
    """They were fetched until the disk was full."""
    node = witness_on_a_full_disk(100)
    tree = node.disk.tree()
    copy = ask_for_rows(node)
    assert copy.reason.startswith("TOO_LARGE: the copy needs ") and not copy.begun
    assert node.disk.tree() == tree and node.network.open == set()


@pytest.mark.parametrize("change", ["failure", "term"])
def test_a_witness_that_no_longer_meets_the_guards_removes_nothing(change: str) -> None:
    node = witness_on_a_full_disk(2 * NEEDED_BYTES)
    replica, space_left, tree = node.peers.replicas[TABLET], node.disk.space_left, node.disk.tree()

    def changes(path: str) -> int:
        if change == "failure":
            replica.failure = "a broken disk"  # type: ignore[misc]
        else:
            vars(replica.status).update(term=99)
        return space_left(path)

    node.disk.space_left = changes  # type: ignore[method-assign]
    assert "has failed, or knows a later term" in ask_for_rows(node).reason
    assert node.disk.tree() == tree
