"""Deletes the replica of a tablet, in steps with a crash point after each.

Source: "Tablet deletion" of the tablet-copy design, steps 1 to 6; ``durability.md`` rules 18, 19 and 22.

1. The caller shuts the replica down and closes its store.
2. The quarantine directory is created.
3. The superblock is copied into it.
4. The superblock becomes a tombstone: DELETED, with the last op id of the log and the path of the quarantine directory.
   This is the commit point: a deletion that a crash interrupts later is completed at the next start.
5. The consensus metadata is copied. The original, with term and vote, stays for ever.
6. The data is moved into the quarantine directory, then the log. As long as the log is there, the deletion is not
   complete.

Every step can be repeated, and nothing is removed. A replica whose log, superblock or consensus metadata could not be
read has the last op id UNKNOWN, and never votes again. A superblock that cannot be read is copied as it is, and then
replaced in one step: at no moment is the tablet without a superblock, so no empty replica is created in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints, save
from stelae.host.superblock import SUPERBLOCK, DataState, Superblock, SuperblockFile
from stelae.lifecycle.quarantine import DeletionRecord, make_directory, save_record
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.services import Files
from stelae.spi.wal import WalEngine

LastOpId: TypeAlias = OpId | Literal["UNKNOWN"]
SetAside: TypeAlias = Callable[[LogId, str], None]


def write_tombstone(
    files: Files,
    layout: DirectoryLayout,
    block: Superblock,
    last: LastOpId,
    about: DeletionRecord,
    crash: CrashPoints = NO_CRASH,
    *,
    removed: bool = False,
    lost: bool = False,
) -> Superblock:
    """Do steps 2 to 4, and return the durable tombstone. The replica must be shut down.

    ``removed``: the table of the tablet is deleted for good. ``lost``: the superblock file is gone or cannot be
    decoded, and ``block`` takes its place (``lost_superblock``).

    Raises ``ValueError`` if ``block`` is a tombstone: its last op id and its quarantine directory must stay.

    After a ``StorageError`` the replica is unchanged or deleted; the next start finds out which."""
    if block.data_state is DataState.DELETED:
        raise ValueError(f"tablet {block.tablet_id} is a tombstone already")
    place = make_directory(files, layout, block.tablet_id)
    crash.hit("delete.after_quarantine_directory")
    path = f"{layout.root}/{place}"
    save_record(files, path, about)
    present = layout.superblock_of(block.tablet_id)
    if not lost or files.exists(present):
        files.replace(f"{path}/superblock", files.read_bytes(present))
    crash.hit("delete.after_superblock_copy")
    tombstone = msgspec.structs.replace(tombstone_of(block, last), quarantine=place, removed=removed)
    if lost:  # ``SuperblockFile`` never replaces what it cannot read.
        save(files, SUPERBLOCK, present, tombstone, crash)
    else:
        SuperblockFile(files, layout, block.tablet_id, crash).save(tombstone)
    crash.hit("delete.after_tombstone")
    return tombstone


def set_data_aside(files: Files, layout: DirectoryLayout, tombstone: Superblock, crash: CrashPoints = NO_CRASH) -> None:
    """Do step 5, and move the data (step 6). May be repeated.

    An operator may have emptied the quarantine meanwhile, as on a full disk. So its directory is made again. The names
    of both are synced in any case: an earlier attempt may have failed, or was killed, before it did so."""
    place = quarantine_of(layout, tombstone)
    files.make_directory(place)
    files.sync_directory(layout.quarantine)
    files.sync_directory(layout.superblocks)
    tablet = tombstone.tablet_id
    if files.exists(layout.consensus_of(tablet)):  # Otherwise it was lost, and the last op id is UNKNOWN.
        files.replace(f"{place}/consensus-meta", files.read_bytes(layout.consensus_of(tablet)))
    crash.hit("delete.after_consensus_copy")
    if files.exists(layout.data_of(tablet)):
        files.rename(layout.data_of(tablet), f"{place}/data")
        crash.hit("delete.after_data_moved")
    files.sync_directory(place)
    files.sync_directory(layout.data)
    crash.hit("delete.after_data_durable")


def copy_log_aside(layout: DirectoryLayout, tombstone: Superblock, wal: WalEngine) -> bool:
    """Copy a part of the log ahead of ``set_log_aside``. Return whether to call again before it."""
    return wal.copy_aside(tombstone.log_id, _logs_of(layout, tombstone))


def set_log_aside(
    layout: DirectoryLayout, tombstone: Superblock, set_aside: SetAside, crash: CrashPoints = NO_CRASH
) -> None:
    """Move the log (step 6), which completes the deletion. May be repeated. ``set_aside`` is the log engine's."""
    set_aside(tombstone.log_id, _logs_of(layout, tombstone))
    crash.hit("delete.after_log")


def _logs_of(layout: DirectoryLayout, tombstone: Superblock) -> str:
    return f"{quarantine_of(layout, tombstone)}/wals"


def roll_forward(
    files: Files, layout: DirectoryLayout, tombstone: Superblock, set_aside: SetAside, crash: CrashPoints = NO_CRASH
) -> None:
    """Do steps 5 and 6 of a deletion that a crash has interrupted."""
    set_data_aside(files, layout, tombstone, crash)
    set_log_aside(layout, tombstone, set_aside, crash)


def lost_superblock(tablet: TabletId, newest: LogId | None) -> Superblock:
    """Return a superblock in place of one that is gone or cannot be read. Only its tombstone is ever written.

    ``newest`` is the newest log of the tablet, which goes into quarantine with it."""
    return Superblock(tablet_id=tablet, generation=1 if newest is None else newest.generation)


def tombstone_of(block: Superblock, last: LastOpId) -> Superblock:
    """Return the tombstone of a superblock. It stays for ever, so it has only what a vote needs.

    The last op id of an earlier replica stays the last one if the log of this one has not reached it. The quarantine
    directory stays as well: that of a superblock COPYING has the data that the replica had up to that op id."""
    if isinstance(last, OpId) and isinstance(block.tombstone, OpId):
        last = max(last, block.tombstone)
    return msgspec.structs.replace(
        block,
        data_state=DataState.DELETED,
        tombstone=last,
        schemas=(),
        log_only=False,
        manifest=b"",
        flushed=ZERO,
        results=b"",
    )


def quarantine_of(layout: DirectoryLayout, tombstone: Superblock) -> str:
    """Return the path of the quarantine directory of a tombstone."""
    return f"{layout.root}/{tombstone.quarantine}"
