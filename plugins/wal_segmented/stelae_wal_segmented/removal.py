"""Taking things out of a log: collected segments, a whole log, a log for quarantine.

In each of them the base file is written first, so that a crash in the middle is known for what it
is, and finished by repeating the call or by the next start."""

from __future__ import annotations

from contextlib import suppress

from stelae.spi.errors import StorageError
from stelae.spi.ids import OpId
from stelae.spi.services import Files
from stelae_wal_segmented.base import LogUse
from stelae_wal_segmented.directories import make_durable, parent_of
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.names import FileKind, base_name, parse


def collect(log: TabletLog, upto: int) -> OpId:
    """Remove whole segments whose entries are all at or below ``upto``; return the base.

    Raises:
        StorageError: the base could not be written; nothing was removed.
    """
    with log.lock:
        count, highest = log.chain.collectable(upto, log.last.index)
        if not count:
            return log.base.base
        base = log.op_id_at(max(highest, log.base.base.index))
        first_sequence = log.chain.segments[count - 1].header.sequence + 1
    log.write_base(log.base.changed(base=base, first_sequence=first_sequence))
    with log.lock:
        gone = log.chain.drop_front(count)
        log.chain.runs.forget_below(base.index + 1)
    for segment in gone:
        # Left-overs are below the base's first sequence: the next start removes them.
        with suppress(FileNotFoundError, StorageError):
            log.setting.files.remove(segment.path)
    return base


def drop(log: TabletLog) -> None:
    """Remove a log durably.

    Raises:
        StorageError: it is half done; the next start finishes it.
    """
    log.end.abandon()
    files = log.setting.files
    if files.exists(f"{log.directory}/{base_name(log.log.generation)}"):
        log.write_base(log.base.changed(use=LogUse.DROPPING))
    remove_files(files, log.directory, log.log.generation)


def remove_files(files: Files, directory: str, generation: int) -> None:
    """Remove every file of a log, the base file last, and the directory if nothing is left."""
    segments, base = _files_of(files, directory, generation)
    for names in (segments, base):
        for name in names:
            files.remove(f"{directory}/{name}")
        files.sync_directory(directory)
    remove_if_empty(files, directory)


def remove_if_empty(files: Files, directory: str) -> None:
    """Remove a tablet's directory once no log is in it."""
    if not files.listdir(directory):
        files.remove_tree(directory)
        files.sync_directory(parent_of(directory))


def set_aside(log: TabletLog, target: str) -> None:
    """Move a log's files to another directory, the base file last. May be repeated.

    Raises:
        StorageError: it is half done; repeat it.
    """
    if log.damage is None and log.failed is None:
        log.end.seal()
    log.end.abandon()
    files = log.setting.files
    base_path = f"{log.directory}/{base_name(log.log.generation)}"
    if log.base.use is LogUse.LIVE and files.exists(base_path):
        log.write_base(log.base.changed(use=LogUse.LEAVING))
    make_durable(files, target)
    segments, base = _files_of(files, log.directory, log.log.generation)
    for names in (segments, base):
        for name in names:
            files.rename(f"{log.directory}/{name}", f"{target}/{name}")
        files.sync_directory(target)
        files.sync_directory(log.directory)
    remove_if_empty(files, log.directory)


def _files_of(files: Files, directory: str, generation: int) -> tuple[list[str], list[str]]:
    """Files of one generation: all but the base file, and the base file."""
    found = [(name, parsed) for name in files.listdir(directory) if (parsed := parse(name))]
    mine = [(name, parsed.kind) for name, parsed in found if parsed.generation == generation]
    others = [name for name, kind in mine if kind is not FileKind.BASE]
    return others, [name for name, kind in mine if kind is FileKind.BASE]
