"""Restores a deleted replica from the quarantine, on a node that is stopped (``durability.md`` rule 23).

A restored replica must have everything that its tombstone acknowledged. So term, vote and config stay those of the
tombstone's consensus metadata, and the log in quarantine must end exactly at the tombstone's last op id. It must have
the entry of that config: a copy that was abandoned late may have merged a newer one. All checks come before the first
change. Then:

1. The log is copied into the log engine, in the next generation. The log in quarantine does not change.
2. The data is copied.
3. **Commit point:** the superblock in quarantine becomes the tablet's superblock again, READY, with the new generation.
4. The directory in quarantine is removed.

A crash before step 3 leaves the tombstone. The copies are removed by the next restore or at the next start of the node.
The masters decide whether the tablet's table still exists; if it does not, they delete the replica again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import TypeAlias

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints, decode
from stelae.host.superblock import SUPERBLOCK, DataState, Superblock, SuperblockFile
from stelae.lifecycle.directory_size import bytes_below
from stelae.lifecycle.quarantine import directory_of, purge, tablet_of
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding, inspect_tablet
from stelae.spi.errors import CallerError, Full, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.services import Files
from stelae.spi.wal import Append, Failed, LogState, WalEngine

OpenAside: TypeAlias = Callable[[str, LogId], AbstractContextManager[tuple[LogState, Iterator[Entry]]]]
"""Opens a log in a directory of the quarantine. Gives its state, and its entries after the base."""

BATCH_BYTES = 4 << 20
"""Bytes of entries, or of a file, that are read at a time."""

SPACE_FACTOR = 2
"""Free bytes that are required for each byte in quarantine, because the original stays until the copy is complete."""


class BackInTime(CallerError, code="BACK_IN_TIME"):
    """The data in quarantine is older than what the replica has acknowledged since. Nothing was changed."""


def restore(
    files: Files,
    layout: DirectoryLayout,
    wal: WalEngine,
    name: str,
    open_aside: OpenAside,
    crash: CrashPoints = NO_CRASH,
) -> Superblock:
    """Restore a directory of the quarantine. Return the superblock, which is durable.

    Args:
        wal: the node's log engine, open. The caller has locked the node's directory.
        name: the name of the directory.
        open_aside: opens the log in quarantine, with the engine that wrote it.

    Raises:
        BackInTime: the directory is not of the last deletion, or its log ends before the tombstone's last op id or the
            committed config.
        CallerError: the tablet is not a tombstone, or must never vote again.
        Full: there is not enough space for a copy.
        StorageError: a file cannot be read or written. The tombstone stays.
    """
    found = inspect_tablet(files, layout, wal.logs(), wal.op_id_at, tablet_of(name))
    tombstone, last = _tombstone(found, f"quarantine/{name}")
    place = directory_of(layout, name)
    block = _set_aside(files, f"{place}/superblock", tombstone)
    wanted, left = SPACE_FACTOR * bytes_below(files, place), files.space_left(layout.root)
    if left < wanted:
        raise Full(f"a copy needs {wanted} bytes, and {left} are free; nothing was changed", path=layout.root)
    made = msgspec.structs.replace(
        block, generation=tombstone.generation + 1, data_state=DataState.READY, tombstone=None, quarantine=None
    )
    if not files.exists(f"{place}/wals"):
        raise StorageError("there is no log in quarantine; nothing was changed", path=place)
    with open_aside(f"{place}/wals", block.log_id) as (state, entries):
        _check_log(state, entries, last)
    with open_aside(f"{place}/wals", block.log_id) as (state, entries):
        _copy_log(wal, made.log_id, state, entries)
    crash.hit("restore.after_log")
    _copy_data(files, layout, place, made)
    crash.hit("restore.after_data")
    SuperblockFile(files, layout, made.tablet_id, crash).save(made)
    crash.hit("restore.after_superblock")
    purge(files, layout, [name])
    return made


# -- checks ----------------------------------------------------------------------------------------


def _tombstone(found: TabletFinding, place: str) -> tuple[Superblock, OpId]:
    """Return the tombstone of the directory, and its last op id."""
    block, tablet = found.superblock, found.tablet_id
    if found.failure or block is None:
        why = found.failure or "there is no superblock: the tablet was never on this node"
        raise CallerError(f"tablet {tablet} cannot be restored: {why}")
    if found.decision.action is StartupAction.ROLL_FORWARD:
        raise CallerError(f"the deletion of tablet {tablet} was interrupted; start the node once to complete it")
    if found.decision.action is not StartupAction.TOMBSTONE:
        raise BackInTime(
            f"tablet {tablet} is {block.data_state} on this node; the data in quarantine is older and cannot replace it"
        )
    if block.quarantine != place:
        last = f"its data is in {block.quarantine}" if block.quarantine else "it kept no data"
        raise BackInTime(f"{place} is not of the last deletion of tablet {tablet} ({last}); it is older")
    if not isinstance(block.tombstone, OpId):
        raise CallerError(
            f"the last op id of tablet {tablet} is UNKNOWN: it is not known what this replica acknowledged, "
            "so it never votes again; let the masters add another replica"
        )
    assert found.consensus is not None, "a tombstone without consensus metadata fails"
    config = found.consensus.committed_config.op_id
    if config > block.tombstone:
        raise BackInTime(
            f"the log in quarantine ends at {block.tombstone}, and an abandoned copy has told this node the committed "
            f"config of {config}; let the masters add another replica; nothing was changed"
        )
    return block, block.tombstone


def _set_aside(files: Files, path: str, tombstone: Superblock) -> Superblock:
    """Return the superblock as it was before the deletion. Abandoned copies have raised the tombstone's generation."""
    try:
        block = decode(SUPERBLOCK, files.read_bytes(path), path)
    except FileNotFoundError as error:
        raise StorageError("there is no superblock in quarantine; nothing was changed", path=path) from error
    of_tablet = block.tablet_id == tombstone.tablet_id and block.generation <= tombstone.generation
    if not of_tablet or block.data_state is not DataState.READY:
        fact = f"it is of {block.log_id} ({block.data_state}), and the tombstone is of {tombstone.log_id}"
        raise BackInTime(f"the superblock in quarantine is not of this replica: {fact}; nothing was changed")
    return block


def _check_log(state: LogState, entries: Iterable[Entry], last: OpId) -> None:
    """Read a log to its end, which must be the tombstone's last op id. Raises ``Corrupt`` if an entry is damaged."""
    reached = state.base
    for entry in entries if state.last == last else ():
        reached = entry.op_id
    if reached != last:
        found = state.last if state.last != last else reached
        raise BackInTime(
            f"the log in quarantine can be read up to {found}, but the replica acknowledged entries up to {last}; "
            "nothing was changed"
        )


# -- effects ---------------------------------------------------------------------------------------


def _copy_log(wal: WalEngine, log: LogId, state: LogState, entries: Iterable[Entry]) -> None:
    """Copy the log into the log engine. It replaces what an earlier attempt left. Durable on return."""
    wal.drop(log)
    wal.create(log, state.base)
    batch: list[Entry] = []
    held = 0
    for entry in entries:
        batch.append(entry)
        held += entry.size_bytes
        if held >= BATCH_BYTES:
            _append(wal, log, batch, state.commit_hint)
            batch, held = [], 0
    if batch:
        _append(wal, log, batch, state.commit_hint)
    made = wal.logs()[log]
    if (made.base, made.last) != (state.base, state.last):
        wal.drop(log)
        raise StorageError(f"the copy of the log has {made.base} to {made.last}, not {state.base} to {state.last}")


def _append(wal: WalEngine, log: LogId, batch: list[Entry], commit_hint: int) -> None:
    outcome = wal.commit({log: Append(entries=tuple(batch), commit_hint=commit_hint)}, sync=True)[log]
    if isinstance(outcome, Failed):
        wal.drop(log)
        raise outcome.error


def _copy_data(files: Files, layout: DirectoryLayout, place: str, block: Superblock) -> None:
    """Copy the files of the store. Durable on return. A store without files has no directory."""
    target = layout.data_of(block.tablet_id)
    files.remove_tree(target)
    if files.exists(f"{place}/data"):
        _copy_tree(files, f"{place}/data", target)
    files.sync_directory(layout.data)


def _copy_tree(files: Files, source: str, target: str) -> None:
    files.make_directory(target)
    for name in files.listdir(source):
        try:
            files.listdir(f"{source}/{name}")
        except NotADirectoryError:
            _copy_file(files, f"{source}/{name}", f"{target}/{name}")
        else:
            _copy_tree(files, f"{source}/{name}", f"{target}/{name}")
    files.sync_directory(target)


def _copy_file(files: Files, source: str, target: str) -> None:
    with closing(files.open(source)) as old, closing(files.create(target)) as new:
        size, at = old.size(), 0
        while at < size:
            chunk = old.pread(BATCH_BYTES, at)
            if not chunk:
                raise StorageError(f"the file ends before its length of {size} bytes", path=source, offset=at)
            new.pwritev([chunk], at)
            at += len(chunk)
        new.sync()
