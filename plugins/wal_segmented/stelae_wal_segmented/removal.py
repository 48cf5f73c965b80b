"""Removes collected segments, drops a log, and moves a log to quarantine.

Each of them writes the base file first. So recovery can tell what a crash interrupted, and repeating the call or the
next start finishes it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from functools import partial

from stelae.spi.errors import StorageError, SyncFailed
from stelae.spi.ids import OpId
from stelae.spi.services import Files
from stelae_shared.log_files.directories import make_durable
from stelae_wal_segmented.base_file import LogUse
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.names import DISPOSABLE, LogFileKind, base_name, parse


def collect(log: TabletLog, upto: int) -> OpId:
    """Remove the segments whose entries are all at or below ``upto``; return the base.

    A replacement may have voided entries of these segments. It is made durable first: a crash that lost it would leave
    neither the old entries nor the new ones. The file of a large segment without readers may be kept for re-use.

    Raises:
        SyncFailed: the base file can no longer be trusted, and the log takes no more appends. Nothing was removed.
        StorageError: the base file was not written, for example because the disk is full. Nothing has changed.
    """
    with log.lock:
        count, highest = log.chain.collectable(upto, log.last.index)
        if not count:
            return log.base.base
        base = log.op_id_at(max(highest, log.base.base.index))
        first_sequence = log.chain.segments[count - 1].header.sequence + 1
    failure = log.sync() if log.active.unsynced else None
    if failure is not None:
        raise failure.error
    try:
        log.write_base(log.base.changed(base=base, first_sequence=first_sequence))
    except (SyncFailed, OSError) as error:
        raise log.fail_permanently(error) from error
    with log.lock:
        gone = log.chain.drop_front(count)
        log.chain.runs.forget_below(base.index + 1)
        # No new reader finds a segment that is not in the chain.
        unread = [segment for segment in gone if not segment.has_readers()]
    for segment in gone:
        if segment in unread and log.active.keep(segment):
            continue
        # A file that remains is below the base's first sequence: the next start removes it.
        with suppress(FileNotFoundError, StorageError):
            log.context.files.remove(segment.path)
    return base


def drop(log: TabletLog) -> None:
    """Remove a log durably.

    Raises:
        StorageError: the removal is incomplete; the next start finishes it.
    """
    log.active.abandon()
    files = log.context.files
    if files.exists(f"{log.directory}/{base_name(log.log.generation)}"):
        log.write_base(log.base.changed(use=LogUse.DROPPING))
    remove_files(files, log.directory, log.log.generation)


def remove_files(files: Files, directory: str, generation: int) -> None:
    """Remove every file of a log, the base file last, and the directory if it is empty then."""
    for kinds in (DISPOSABLE | {LogFileKind.SEGMENT}, {LogFileKind.BASE}):
        _remove(files, directory, _names(files, directory, generation, kinds))
        files.sync_directory(directory)
    remove_if_empty(files, directory)


def remove_if_empty(files: Files, directory: str) -> None:
    """Remove a tablet's directory if it has no files. Not durable: the next start removes one that comes back."""
    if not files.listdir(directory):
        files.remove_tree(directory)


def set_aside(log: TabletLog, target: str) -> None:
    """Move a log's files to another directory, the base file last. May be repeated.

    The base file is copied, and then removed. Once it is gone, the move counts as complete. So its new name must be
    durable before that, and not only afterwards: the process may be killed in between.

    A log that has failed is moved as it is. After a failed sync its files cannot be relied on, so nothing is written to
    them. After a full disk they may have a part of the group that failed, and groups that were not synced. So the base
    file says where the log ends: what readers of the engine saw last is what the quarantine has (durability rule 23).

    Raises:
        StorageError: the move is incomplete; repeat it.
    """
    if log.damage is None and log.failed is None:
        try:
            log.active.seal(log.chain)
        except (SyncFailed, OSError) as error:
            raise log.fail_permanently(error) from error
    log.active.abandon()
    files = log.context.files
    base_path = f"{log.directory}/{base_name(log.log.generation)}"
    if log.base.use is LogUse.LIVE and files.exists(base_path):
        if log.failed is None:
            log.write_base(log.base.changed(use=LogUse.LEAVING))
        else:
            log.write_base(log.base.changed(use=LogUse.SYNC_FAILED, durable=log.durable))
    make_durable(files, target)
    generation = log.log.generation
    _remove(files, log.directory, _names(files, log.directory, generation, DISPOSABLE))
    for kind, move in ((LogFileKind.SEGMENT, files.rename), (LogFileKind.BASE, partial(_move_by_copy, files))):
        for name in _names(files, log.directory, generation, {kind}):
            move(f"{log.directory}/{name}", f"{target}/{name}")
        files.sync_directory(target)
        files.sync_directory(log.directory)
    remove_if_empty(files, log.directory)


def _move_by_copy(files: Files, source: str, target: str) -> None:
    """Copy a small file durably, then remove it. Without space, or if it cannot be read, rename it."""
    try:
        files.replace(target, files.read_bytes(source))
    except StorageError:
        files.rename(source, target)
    else:
        files.remove(source)


def _names(files: Files, directory: str, generation: int, kinds: Set[LogFileKind]) -> list[str]:
    """Return the names of one generation's files of these kinds."""
    found = [(name, parsed) for name in files.listdir(directory) if (parsed := parse(name))]
    return [name for name, parsed in found if parsed.generation == generation and parsed.kind in kinds]


def _remove(files: Files, directory: str, names: Sequence[str]) -> None:
    for name in names:
        # The worker of a future segment removes its file itself when the file is no longer wanted.
        with suppress(FileNotFoundError):
            files.remove(f"{directory}/{name}")
