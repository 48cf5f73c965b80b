"""Finding the logs in the engine's directory when it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from stelae.spi.errors import BadIdentifier, Corrupt, StorageError
from stelae.spi.ids import LogId, TabletId, tablet_id
from stelae.spi.services import Files
from stelae_wal_segmented.base import LogUse, read_base
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.names import FileKind, base_name, parse
from stelae_wal_segmented.open_end import Setting
from stelae_wal_segmented.recovery import recover_log
from stelae_wal_segmented.removal import remove_files, remove_if_empty


def recover_all(setting: Setting, directory: str) -> dict[LogId, TabletLog]:
    """Recover every log of a node, finishing what a crash interrupted.

    Raises:
        FutureVersion: a file was written by a newer release.
        StorageError: what is there cannot be read now.
    """
    logs: dict[LogId, TabletLog] = {}
    for tablet in _tablets(setting.files, directory):
        place = f"{directory}/{tablet}"
        for generation, sequences in _generations(setting.files, place).items():
            if _is_dropped(setting.files, place, generation):
                remove_files(setting.files, place, generation)
                continue
            log = LogId(tablet, generation)
            found = recover_log(setting.files, place, log, sequences)
            logs[log] = TabletLog(setting, place, log, found)
    return logs


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
    """Segments by generation, after removing what was never finished (row A)."""
    found: dict[int, list[int]] = {}
    for name in files.listdir(place):
        parsed = parse(name)
        if parsed is None:
            continue
        if parsed.kind in (FileKind.UNBORN, FileKind.TEMPORARY):
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
