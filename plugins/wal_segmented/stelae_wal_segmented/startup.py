"""Finds and recovers the logs in the engine's directory when the engine is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from stelae.spi.errors import BadIdentifier, Corrupt, Foreign, Full, FutureVersion, StorageError
from stelae.spi.ids import LogId, TabletId, tablet_id
from stelae.spi.services import Files
from stelae_wal_segmented.base_file import LogUse, read_base, unknown_base
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.names import DISPOSABLE, LogFileKind, base_name, parse
from stelae_wal_segmented.recovery import RecoveredLog, UnreadableLog, try_recover_log
from stelae_wal_segmented.removal import remove_files, remove_if_empty
from stelae_wal_segmented.space import SegmentedContext


def recover_all(context: SegmentedContext, directory: str, log_type: type[TabletLog]) -> dict[LogId, TabletLog]:
    """Recover every log of a node, and finish removals that a crash interrupted.

    A log that cannot be read is tried again after all others. If it still cannot be read, but at least as many other
    logs can, only a part of the disk fails, and only this log is out of use.

    Raises:
        FutureVersion: a newer release wrote a file.
        StorageError: more logs are unreadable than readable, or a directory cannot be read.
    """
    logs: dict[LogId, TabletLog] = {}
    again: dict[LogId, list[int]] = {}
    for tablet in _tablets(context.files, directory):
        for generation, sequences in _generations(context.files, f"{directory}/{tablet}").items():
            log = LogId(tablet, generation)
            if isinstance(_take(context, directory, log, sequences, logs, log_type), UnreadableLog):
                again[log] = sequences
    found = {log: _take(context, directory, log, sequences, logs, log_type) for log, sequences in again.items()}
    unread = {log: answer for log, answer in found.items() if answer is not None}
    if len(unread) > len(logs):
        raise next(iter(unread.values())).error
    for log, answer in unread.items():
        logs[log] = log_type(context, f"{directory}/{log.tablet_id}", log, answer.settled())
    return logs


def _take(
    context: SegmentedContext,
    directory: str,
    log: LogId,
    sequences: list[int],
    logs: dict[LogId, TabletLog],
    log_type: type[TabletLog],
) -> UnreadableLog | None:
    """Recover a log into ``logs``, or finish its removal; return an ``UnreadableLog`` if it cannot be read now."""
    files, tablet_directory = context.files, f"{directory}/{log.tablet_id}"
    try:
        dropped = _is_dropped(files, tablet_directory, log.generation)
    except (FutureVersion, Foreign, Full):
        raise
    except StorageError as error:
        return UnreadableLog(error, RecoveredLog(unknown_base(log)))
    if dropped:
        remove_files(files, tablet_directory, log.generation)
        return None
    found = try_recover_log(files, tablet_directory, log, sequences)
    if isinstance(found, UnreadableLog):
        return found
    logs[log] = log_type(context, tablet_directory, log, found)
    return None


def _tablets(files: Files, directory: str) -> Iterator[TabletId]:
    """Yield the tablets that have a directory. Other names are left alone."""
    for name in files.listdir(directory):
        try:
            tablet = tablet_id(name)
            files.listdir(f"{directory}/{name}")
        except (BadIdentifier, NotADirectoryError):
            continue
        yield tablet


def _generations(files: Files, tablet_directory: str) -> dict[int, list[int]]:
    """Return the numbers of the segments by generation; remove files that do not count (rows A, U)."""
    found: dict[int, list[int]] = {}
    for name in files.listdir(tablet_directory):
        parsed = parse(name)
        if parsed is None:
            continue
        if parsed.kind in DISPOSABLE:
            with suppress(StorageError, OSError):  # The next start tries again.
                files.remove(f"{tablet_directory}/{name}")
            continue
        sequences = found.setdefault(parsed.generation, [])
        if parsed.kind is LogFileKind.SEGMENT:
            sequences.append(parsed.sequence)
    if not found:
        remove_if_empty(files, tablet_directory)
    return {generation: sorted(sequences) for generation, sequences in sorted(found.items())}


def _is_dropped(files: Files, tablet_directory: str, generation: int) -> bool:
    """Say whether the removal of the log has begun (row C)."""
    try:
        base = read_base(files, f"{tablet_directory}/{base_name(generation)}")
    except (FileNotFoundError, IsADirectoryError, Corrupt):
        return False
    return base.use is LogUse.DROPPING
