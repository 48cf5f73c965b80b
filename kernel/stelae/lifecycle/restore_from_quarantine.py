"""Brings back what a deletion has set aside, on a node that does not run (``durability.md`` rule 23).

Nothing may go back in time: a replica that is restored has to know all that its tombstone acknowledged. So term, vote
and config stay those of the tombstone's consensus metadata, and the log that was set aside has to end exactly at the
tombstone's last op id. All guards come before the first effect. Then:

1. The log is made anew, in the next generation; what is set aside stays as it is.
2. The data are copied.
3. **Commit point:** the superblock that was set aside becomes the tablet's again, READY, and names the new generation.
4. The directory in quarantine is removed.

A crash before step 3 leaves the tombstone; what was made is removed when it is restored again, or when the node starts.
Whether the tablet's table is still there is for the masters to say: a replica that nobody wants is deleted again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import TypeAlias

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints, decode
from stelae.host.superblock import SUPERBLOCK, DataState, Superblock, SuperblockFile
from stelae.lifecycle.directory_size import bytes_below
from stelae.lifecycle.quarantine import place_named, purge, tablet_of
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding, look
from stelae.spi.errors import CallerError, Full, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.services import Files
from stelae.spi.wal import Append, Failed, LogState, WalEngine

OpenAside: TypeAlias = Callable[[str, LogId], AbstractContextManager[tuple[LogState, Iterator[Entry]]]]
"""Opens a log that was set aside in a directory: how it stands, and its entries behind the base."""

BATCH_BYTES = 4 << 20
"""Bytes of entries, or of a file, that are held at a time."""

SPACE_FACTOR = 2
"""Bytes of the disk wanted for each byte that is set aside: it stays until the copy counts."""


class BackInTime(CallerError, code="BACK_IN_TIME"):
    """What is set aside is older than what the replica has promised since; nothing was changed."""


def restore(
    files: Files,
    layout: DirectoryLayout,
    wal: WalEngine,
    name: str,
    open_aside: OpenAside,
    crash: CrashPoints = NO_CRASH,
) -> Superblock:
    """Bring a directory of the quarantine back; return the superblock, which is durable.

    Args:
        wal: the node's log engine, open; the directory's lock is held.
        name: of the directory.
        open_aside: of the engine that set the log aside.

    Raises:
        BackInTime: it is not of the last deletion, or does not reach up to the tombstone's last op id.
        CallerError: the tablet is no tombstone, or may never vote again.
        Full: there is not space enough for a copy.
        StorageError: something cannot be read or written; the tombstone stands.
    """
    found = look(files, layout, wal.logs(), wal.op_id_at, tablet_of(name))
    tombstone, last = _tombstone(found, f"quarantine/{name}")
    place = place_named(layout, name)
    block = _set_aside(files, f"{place}/superblock", tombstone)
    wanted, left = SPACE_FACTOR * bytes_below(files, place), files.space_left(layout.root)
    if left < wanted:
        raise Full(f"a copy wants {wanted} bytes of space, {left} are left; nothing was changed", path=layout.root)
    made = msgspec.structs.replace(
        block, generation=tombstone.generation + 1, data_state=DataState.READY, tombstone=None, quarantine=None
    )
    if not files.exists(f"{place}/wals"):
        raise StorageError("the log that was set aside is gone; nothing was changed", path=place)
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


# -- guards ----------------------------------------------------------------------------------------


def _tombstone(found: TabletFinding, place: str) -> tuple[Superblock, OpId]:
    """The tombstone that the directory belongs to, and its last op id."""
    block, tablet = found.superblock, found.tablet_id
    if found.failure or block is None:
        why = found.failure or "there is no superblock: the tablet was never here"
        raise CallerError(f"tablet {tablet} cannot be restored: {why}")
    if found.decision.action is StartupAction.ROLL_FORWARD:
        raise CallerError(f"the deletion of tablet {tablet} was cut short; start the node once, so that it is ended")
    if found.decision.action is not StartupAction.TOMBSTONE:
        raise BackInTime(
            f"tablet {tablet} is {block.data_state} here: it has gone on since, and what is set aside is older"
        )
    if block.quarantine != place:
        kept = f"that one set {block.quarantine} aside" if block.quarantine else "that one set nothing aside"
        raise BackInTime(
            f"{place} is not of the last deletion of tablet {tablet}: {kept}; it is older than the tombstone"
        )
    if not isinstance(block.tombstone, OpId):
        raise CallerError(
            f"the last op id of tablet {tablet} is UNKNOWN: nobody can say what this replica acknowledged, "
            "so it never votes again; let the masters make another replica"
        )
    return block, block.tombstone


def _set_aside(files: Files, path: str, tombstone: Superblock) -> Superblock:
    """The superblock as it was before the deletion."""
    try:
        block = decode(SUPERBLOCK, files.read_bytes(path), path)
    except FileNotFoundError as error:
        raise StorageError("the superblock that was set aside is gone; nothing was changed", path=path) from error
    if block.log_id != tombstone.log_id or block.data_state is not DataState.READY:
        fact = f"it is of {block.log_id}, {block.data_state}, and the tombstone of {tombstone.log_id}"
        raise BackInTime(f"the superblock that was set aside is not of this replica: {fact}; nothing was changed")
    return block


def _check_log(state: LogState, entries: Iterable[Entry], last: OpId) -> None:
    """Read a log to its end, which has to be the tombstone's last op id; ``Corrupt``: an entry cannot be read."""
    reached = state.base
    for entry in entries if state.last == last else ():
        reached = entry.op_id
    if reached != last:
        found = state.last if state.last != last else reached
        raise BackInTime(
            f"the log that was set aside can be read up to {found}, and the replica acknowledged all up to {last}; "
            "nothing was changed"
        )


# -- effects ---------------------------------------------------------------------------------------


def _copy_log(wal: WalEngine, log: LogId, state: LogState, entries: Iterable[Entry]) -> None:
    """Make the log anew, in place of what an attempt before this one left; durable on return."""
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
        raise StorageError(f"the copy of the log goes from {made.base} to {made.last}, not to {state.last}")


def _append(wal: WalEngine, log: LogId, batch: list[Entry], commit_hint: int) -> None:
    outcome = wal.commit({log: Append(entries=tuple(batch), commit_hint=commit_hint)}, sync=True)[log]
    if isinstance(outcome, Failed):
        wal.drop(log)
        raise outcome.error


def _copy_data(files: Files, layout: DirectoryLayout, place: str, block: Superblock) -> None:
    """Copy the files of the store; durable on return. A store without files has no directory."""
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
            piece = old.pread(BATCH_BYTES, at)
            if not piece:
                raise StorageError(f"the file ends before its length of {size} bytes", path=source, offset=at)
            new.pwritev([piece], at)
            at += len(piece)
        new.sync()
