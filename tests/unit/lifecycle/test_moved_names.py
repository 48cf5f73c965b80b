"""What a deletion has moved or removed when it goes on, a loss of power does not bring back (durability rule 22)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.lifecycle.abandoned_copy import abandon_copy
from stelae.lifecycle.blocking_steps import run_now
from stelae.lifecycle.deletion import set_data_aside, write_tombstone
from stelae.lifecycle.quarantine import DeletionRecord, list_quarantine, purge
from stelae.sim.disk import Survival, VirtualDisk
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, TABLET, DiskNode


def after_power_was_lost(disk: VirtualDisk) -> VirtualDisk:
    """The disk with nothing on it that was not synced."""
    return disk.crash(random.Random(1), Survival.LOST)


def data_are_set_aside_before_the_log_is() -> None:
    """The log engine may sync no more than its own names, so those of the data must be durable before it is asked."""
    node = DiskNode.with_rows(TABLET)
    about = DeletionRecord(tablet_id=TABLET, table_name="", deleted_us=5, reason="test")
    tombstone = write_tombstone(node.disk, LAYOUT, node.block(), LAST, about)
    set_data_aside(node.disk, LAYOUT, tombstone)
    disk = after_power_was_lost(node.disk)
    assert disk.listdir(f"{LAYOUT.root}/{tombstone.quarantine}/data") == ["rows-3"]
    assert not disk.exists(LAYOUT.data_of(TABLET))


def an_abandoned_copy_is_gone_before_its_log_is() -> None:
    node = DiskNode.with_rows(TABLET)
    stage = f"{LAYOUT.copying}/{TABLET}"
    node.disk.make_directory(stage)
    node.disk.replace(f"{stage}/manifest", b"half of it")
    for directory in (LAYOUT.copying, LAYOUT.data):
        node.disk.sync_directory(directory)
    block: Superblock = msgspec.structs.replace(node.block(), data_state=DataState.COPYING, tombstone=LAST)
    SuperblockFile(node.disk, LAYOUT, TABLET).save(block)
    found: list[VirtualDisk] = []

    wal: Any = SimpleNamespace(drop=lambda _log: found.append(after_power_was_lost(node.disk.clone())))
    run_now(abandon_copy(node.disk, LAYOUT, block, keep_stage=False), wal)
    assert not found[0].exists(LAYOUT.data_of(TABLET)), "a copy that begins again would find parts of this one"
    assert not found[0].exists(stage)


def what_is_purged_stays_away() -> None:
    """Its space has been counted as free."""
    node = DiskNode.with_rows(TABLET)
    node.delete()
    node.disk.sync_directory(LAYOUT.quarantine)
    purge(node.disk, LAYOUT, [one.name for one in list_quarantine(node.disk, LAYOUT)])
    assert after_power_was_lost(node.disk).listdir(LAYOUT.quarantine) == []


STORIES = (data_are_set_aside_before_the_log_is, an_abandoned_copy_is_gone_before_its_log_is, what_is_purged_stays_away)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_names_are_durable_when_the_next_step_begins(story: Callable[[], None]) -> None:
    story()


@pytest.mark.parametrize(
    ("story", "directory"),
    [
        (data_are_set_aside_before_the_log_is, f"{LAYOUT.quarantine}/{TABLET}.1"),
        (data_are_set_aside_before_the_log_is, LAYOUT.data),
        (data_are_set_aside_before_the_log_is, LAYOUT.quarantine),
        (an_abandoned_copy_is_gone_before_its_log_is, LAYOUT.data),
        (an_abandoned_copy_is_gone_before_its_log_is, LAYOUT.copying),
        (what_is_purged_stays_away, LAYOUT.quarantine),
    ],
)
def test_each_directory_whose_sync_is_left_out_is_missed(
    story: Callable[[], None], directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync: Any = VirtualDisk.sync_directory
    left_out: list[str] = []

    def planted(disk: VirtualDisk, path: str) -> None:
        if path != directory or not _asked_by_lifecycle():
            sync(disk, path)
        else:
            left_out.append(path)

    monkeypatch.setattr(VirtualDisk, "sync_directory", planted)
    with pytest.raises((AssertionError, FileNotFoundError)):
        story()
    assert left_out


def _asked_by_lifecycle() -> bool:
    """Whether the caller of the caller is a module of the life cycle itself, and no file that is replaced."""
    return "/lifecycle/" in sys._getframe(2).f_code.co_filename and "tests" not in sys._getframe(2).f_code.co_filename
