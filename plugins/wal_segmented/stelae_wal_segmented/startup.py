"""Finding the logs in the engine's directory when it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from stelae.spi.errors import BadIdentifier, Corrupt, Foreign, Full, FutureVersion, StorageError
from stelae.spi.ids import LogId, TabletId, tablet_id
from stelae.spi.services import Files
from stelae_wal_segmented.base import LogUse, read_base, unknown_base
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.names import MEANS_NOTHING, FileKind, base_name, parse
from stelae_wal_segmented.recovery import RecoveredLog, Unread, recover_readable
from stelae_wal_segmented.removal import remove_files, remove_if_empty
from stelae_wal_segmented.space import Setting


def recover_all(setting: Setting, directory: str, log_type: type[TabletLog]) -> dict[LogId, TabletLog]:
    """Recover every log of a node, finishing what a crash interrupted.

    A log that cannot be read is tried again when the others have been read. If it still cannot, while most others can,
    it is a place of the disk that fails, and only that log is out of use.

    Raises:
        FutureVersion: a file was written by a newer release.
        StorageError: what is there cannot be read now.
    """
    logs: dict[LogId, TabletLog] = {}
    again: dict[LogId, list[int]] = {}
    for tablet in _tablets(setting.files, directory):
        for generation, sequences in _generations(setting.files, f"{directory}/{tablet}").items():
            log = LogId(tablet, generation)
            if isinstance(_take(setting, directory, log, sequences, logs, log_type), Unread):
                again[log] = sequences
    found = {log: _take(setting, directory, log, sequences, logs, log_type) for log, sequences in again.items()}
    unread = {log: answer for log, answer in found.items() if answer is not None}
    if len(unread) > len(logs):
        raise next(iter(unread.values())).error
    for log, answer in unread.items():
        logs[log] = log_type(setting, f"{directory}/{log.tablet_id}", log, answer.settled())
    return logs


def _take(
    setting: Setting,
    directory: str,
    log: LogId,
    sequences: list[int],
    logs: dict[LogId, TabletLog],
    log_type: type[TabletLog],
) -> Unread | None:
    """Recover a log into ``logs``, or end its removal, unless it cannot be read now."""
    files, place = setting.files, f"{directory}/{log.tablet_id}"
    try:
        dropped = _is_dropped(files, place, log.generation)
    except (FutureVersion, Foreign, Full):
        raise
    except StorageError as error:
        return Unread(error, RecoveredLog(unknown_base(log)))
    if dropped:
        remove_files(files, place, log.generation)
        return None
    found = recover_readable(files, place, log, sequences)
    if isinstance(found, Unread):
        return found
    logs[log] = log_type(setting, place, log, found)
    return None


def _tablets(files: Files, directory: str) -> Iterator[TabletId]:
    """Directories of tablets; names that cannot be a tablet's are left alone."""
    for name in files.listdir(directory):
        try:
            tablet = tablet_id(name)
            files.listdir(f"{directory}/{name}")
        except (BadIdentifier, NotADirectoryError):
            continue
        yield tablet


def _generations(files: Files, place: str) -> dict[int, list[int]]:
    """Segments by generation, after removing what was never finished, or was kept (rows A, U)."""
    found: dict[int, list[int]] = {}
    for name in files.listdir(place):
        parsed = parse(name)
        if parsed is None:
            continue
        if parsed.kind in MEANS_NOTHING:
            with suppress(StorageError, OSError):  # Then at the next start.
                files.remove(f"{place}/{name}")
            continue
        sequences = found.setdefault(parsed.generation, [])
        if parsed.kind is FileKind.SEGMENT:
            sequences.append(parsed.sequence)
    if not found:
        remove_if_empty(files, place)
    return {generation: sorted(sequences) for generation, sequences in sorted(found.items())}


def _is_dropped(files: Files, place: str, generation: int) -> bool:
    """Say whether the log's removal began (row C)."""
    try:
        base = read_base(files, f"{place}/{base_name(generation)}")
    except (FileNotFoundError, IsADirectoryError, Corrupt):
        return False
    return base.use is LogUse.DROPPING
