"""Deletion of a tablet's replica: the steps of the source, each a crash point.

Source: "Tablet deletion" of the tablet-copy design, steps 1 to 6; ``durability.md`` rules 18, 19 and 22.

1. The replica is shut down, its engines closed (by the caller).
2. The quarantine directory is made.
3. The superblock is copied into it.
4. The superblock becomes a tombstone: DELETED, with the last op id of the log and the path of the quarantine. From
   here on the deletion is rolled forward, whatever happens.
5. The consensus metadata is copied; term and vote stay where they are, for ever.
6. The data are moved first and the log last: while the log is there, the deletion is not finished.

Every step can be repeated; nothing is removed. A replica whose log could not be read has an UNKNOWN last op id, and
never votes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.lifecycle.quarantine import DeletionRecord, make_place, save_about
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.services import Files

LastOpId: TypeAlias = OpId | Literal["UNKNOWN"]
SetAside: TypeAlias = Callable[[LogId, str], None]


def write_tombstone(
    files: Files,
    layout: DirectoryLayout,
    block: Superblock,
    last: LastOpId,
    about: DeletionRecord,
    crash: CrashPoints = NO_CRASH,
) -> Superblock:
    """Steps 2 to 4: return the tombstone, which is durable. The replica is shut down.

    ``StorageError``: the replica is as it was, or deleted; start-up tells which."""
    place = make_place(files, layout, block.tablet_id)
    crash.hit("delete.after_quarantine_directory")
    path = f"{layout.root}/{place}"
    save_about(files, path, about)
    files.replace(f"{path}/superblock", files.read_bytes(layout.superblock_of(block.tablet_id)))
    crash.hit("delete.after_superblock_copy")
    tombstone = tombstone_of(block, last, place)
    SuperblockFile(files, layout, block.tablet_id, crash).save(tombstone)
    crash.hit("delete.after_tombstone")
    return tombstone


def set_data_aside(files: Files, layout: DirectoryLayout, tombstone: Superblock, crash: CrashPoints = NO_CRASH) -> None:
    """Step 5, and of step 6 the data. May be repeated."""
    place = place_of(layout, tombstone)
    tablet = tombstone.tablet_id
    if files.exists(layout.consensus_of(tablet)):  # else it was lost, and the last op id is UNKNOWN
        files.replace(f"{place}/consensus-meta", files.read_bytes(layout.consensus_of(tablet)))
    crash.hit("delete.after_consensus_copy")
    if files.exists(layout.data_of(tablet)):
        files.rename(layout.data_of(tablet), f"{place}/data")
        crash.hit("delete.after_data_moved")
    files.sync_directory(place)
    files.sync_directory(layout.data)
    crash.hit("delete.after_data_durable")


def set_log_aside(
    layout: DirectoryLayout, tombstone: Superblock, set_aside: SetAside, crash: CrashPoints = NO_CRASH
) -> None:
    """Of step 6 the log: with it the deletion is finished. May be repeated. ``set_aside`` is the log engine's."""
    set_aside(tombstone.log_id, f"{place_of(layout, tombstone)}/wals")
    crash.hit("delete.after_log")


def roll_forward(
    files: Files, layout: DirectoryLayout, tombstone: Superblock, set_aside: SetAside, crash: CrashPoints = NO_CRASH
) -> None:
    """Steps 5 and 6, for a deletion that a crash has cut short."""
    set_data_aside(files, layout, tombstone, crash)
    set_log_aside(layout, tombstone, set_aside, crash)


def abandon_copy(
    files: Files,
    layout: DirectoryLayout,
    block: Superblock,
    drop_log: Callable[[LogId], None],
    crash: CrashPoints = NO_CRASH,
) -> Superblock:
    """Take a COPYING replica back to its tombstone, without a look into its log (rule 19).

    The last op id that the superblock kept stays; a tablet that was never here before has none, and votes as a replica
    with an empty log."""
    tombstone = tombstone_of(block, ZERO if block.tombstone is None else block.tombstone, block.quarantine)
    SuperblockFile(files, layout, block.tablet_id, crash).save(tombstone)
    crash.hit("abandon.after_tombstone")
    for directory, parent in ((layout.data_of(block.tablet_id), layout.data), (_stage(layout, block), layout.copying)):
        files.remove_tree(directory)
        files.sync_directory(parent)
    crash.hit("abandon.after_data")
    drop_log(block.log_id)
    return tombstone


def tombstone_of(block: Superblock, last: LastOpId, place: str | None) -> Superblock:
    """The record that stays for ever: small, and all that a vote needs."""
    return msgspec.structs.replace(
        block,
        data_state=DataState.DELETED,
        tombstone=last,
        quarantine=place,
        schemas=(),
        manifest=b"",
        flushed=ZERO,
        results=b"",
    )


def place_of(layout: DirectoryLayout, tombstone: Superblock) -> str:
    """The quarantine directory of a tombstone."""
    return f"{layout.root}/{tombstone.quarantine}"


def _stage(layout: DirectoryLayout, block: Superblock) -> str:
    return f"{layout.copying}/{block.tablet_id}"
