"""The way back from a copy that cannot go on, and of one that a crash has interrupted.

Source: "Tablet startup" of the tablet-copy design, row 2; ``durability.md`` rules 19 and 21. Neither the log nor the
rows of the copy are read. What the copy made in ``wals/`` and ``data/`` is removed first, and the superblock says
COPYING until that is complete. So every step can be repeated, after a crash at any of them.

- A copy over a tombstone ends as that tombstone, with the last op id and the quarantine directory that the superblock
  has kept. It votes as before, and can be restored from the quarantine.
- A *first copy* is of a tablet that was never on this node. It has acknowledged nothing and given no vote, so nothing
  of it stays: afterwards the tablet does not exist on this node.

The stage, with all that has arrived, stays for the next copy if it is intact (``copy_stage``)."""

from __future__ import annotations

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.lifecycle.blocking_steps import OffLoop, Steps, WithLog
from stelae.lifecycle.copy_items import ItemKind
from stelae.lifecycle.deletion import tombstone_of
from stelae.spi.services import Files


def is_first_copy(block: Superblock) -> bool:
    """Return whether a superblock is that of a first copy: there was no replica before, so there is no last op id."""
    return block.data_state is DataState.COPYING and block.tombstone is None


def abandon_copy(
    files: Files, layout: DirectoryLayout, block: Superblock, *, keep_stage: bool, crash: CrashPoints = NO_CRASH
) -> Steps[None]:
    """Undo the copy of a COPYING superblock. May be repeated. A start runs it with ``blocking_steps.run_now``."""
    yield OffLoop(lambda: remove_copied_files(files, layout, block, keep_stage=keep_stage, crash=crash))
    yield WithLog(lambda wal: wal.drop(block.log_id))
    crash.hit("abandon.after_log")
    yield OffLoop(lambda: _end_copy(files, layout, block, crash))


def remove_copied_files(
    files: Files, layout: DirectoryLayout, block: Superblock, *, keep_stage: bool, crash: CrashPoints = NO_CRASH
) -> None:
    """Remove the rows that the copy has installed, and the stage unless it is kept. Durable on return.

    Files of rows that were moved from a stage that is kept are moved back. The next copy verifies them."""
    data, stage = layout.data_of(block.tablet_id), layout.stage_of(block.tablet_id)
    rows = f"{stage}/{ItemKind.ROWS}"
    if keep_stage and files.exists(data) and files.exists(stage) and not files.exists(rows):
        files.rename(data, rows)
        files.sync_directory(stage)
    directories = [(data, layout.data)]
    if not keep_stage:
        directories.append((stage, layout.copying))
    for directory, parent in directories:
        files.remove_tree(directory)
        files.sync_directory(parent)
    crash.hit("abandon.after_data")


def _end_copy(files: Files, layout: DirectoryLayout, block: Superblock, crash: CrashPoints) -> None:
    """Make the tombstone durable again; remove consensus metadata and superblock of a first copy, in this order."""
    if not is_first_copy(block):
        assert block.tombstone is not None
        SuperblockFile(files, layout, block.tablet_id, crash).save(tombstone_of(block, block.tombstone))
        crash.hit("abandon.after_tombstone")
        return
    for path, parent in (
        (layout.consensus_of(block.tablet_id), layout.consensus),
        (layout.superblock_of(block.tablet_id), layout.superblocks),
    ):
        if files.exists(path):
            files.remove(path)
        files.sync_directory(parent)  # In any case: that of an earlier attempt may have failed.
        crash.hit("abandon.after_metadata_file")
