"""Exports a log that is set aside: writes its entries to a directory that this engine can open.

The directory has a marker and segments like that of the node, with one log in them. So the same code reads both. A
damaged log is exported up to the damage, and a note says where and why it is damaged.

A long log is exported in parts, because appends to all logs of the node wait for each part. An export that was begun
continues after its last entry.

If the disk does not return an entry, the first attempt fails, because the disk may return it later. The next attempt
exports the entries before it, with a note. Otherwise one bad place on the disk would keep every log that has entries
there in the engine for ever, and with them their segments and tablets."""

from __future__ import annotations

from collections.abc import Iterator

from stelae.spi.errors import Corrupt, Full, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.services import Files
from stelae.spi.wal import Append, Failed, WalEngine
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.reader import read
from stelae_wal_shared.tablet_log import SharedTabletLog

BATCH_BYTES = 4 << 20
DAMAGE_NAME = "damage.txt"


def export_part(state: EngineState, log: SharedTabletLog, target: WalEngine) -> bool:
    """Write the next ``BATCH_BYTES`` of a log into an open engine, durably. Return whether entries are left.

    Raises:
        StorageError: nothing was written, because entries cannot be read, or there is no space.
    """
    last = _begun(log, target)
    if last.index < log.last.index:
        entries = read(state, log, last.index + 1, log.last.index + 1, BATCH_BYTES)
        last = _write(log, target, entries)
    return last.index < log.last.index


def export_log(state: EngineState, log: SharedTabletLog, target: WalEngine, directory: str, unread: set[LogId]) -> None:
    """Write a log into an open engine, durably. It may be repeated.

    Args:
        state: of the engine.
        log: the log.
        target: the open engine.
        directory: of the target, for the note.
        unread: logs with an entry that the disk did not return at an earlier attempt. This attempt may add the log.

    Raises:
        StorageError: the export is incomplete.
    """
    last, missing = _begun(log, target), None
    for found in _batches(state, log, last.index + 1, unread):
        if isinstance(found, StorageError):
            missing = found
        else:
            last = _write(log, target, found)
    _note(state.files, log, directory, missing, last)


def _begun(log: SharedTabletLog, target: WalEngine) -> OpId:
    """Return the op id up to which the target has the log. Begin anew if it has none, or other entries."""
    made = target.logs().get(log.name)
    if made is not None:
        last = made.last
        same = made.damage is None and made.base == log.base and last.index <= log.last.index
        if same and log.op_id_at(last.index) == last:
            return last
        target.drop(log.name)
    target.create(log.name, log.base)
    return log.base


def _write(log: SharedTabletLog, target: WalEngine, entries: list[Entry]) -> OpId:
    last = entries[-1].op_id
    append = Append(entries=tuple(entries), commit_hint=min(log.commit_hint, last.index))
    outcome = target.commit({log.name: append}, sync=True)[log.name]
    if isinstance(outcome, Failed):
        raise outcome.error
    return last


def _batches(
    state: EngineState, log: SharedTabletLog, first: int, unread: set[LogId]
) -> Iterator[list[Entry] | StorageError]:
    """Yield the entries from ``first`` on in batches, and at last the error of an entry that the disk does not return.

    Raises:
        StorageError: the disk does not return an entry for the first time, or the node lacks handles.
    """
    batch_bytes = BATCH_BYTES
    while first <= log.last.index:
        try:
            entries = read(state, log, first, log.last.index + 1, batch_bytes)
        except Full:
            raise
        except Corrupt:
            continue  # The log ends earlier now. Export what is left of it.
        except StorageError as error:
            if log.name not in unread:
                unread.add(log.name)
                raise
            if not batch_bytes:
                yield error
                return
            batch_bytes = 0  # One entry at a time, up to the one that cannot be read.
            continue
        yield entries
        first += len(entries)


def _note(files: Files, log: SharedTabletLog, directory: str, missing: StorageError | None, last: OpId) -> None:
    """Write why the export ends at ``last``, unless it has the whole log."""
    damage = log.damage
    if missing is not None:
        text = f"log {log.name} could not be read behind {last}: {missing}"
    elif damage is not None:
        text = f"log {log.name} is damaged behind {damage.last_good}: {damage.path}@{damage.offset}: {damage.detail}"
    else:
        return
    files.replace(f"{directory}/{DAMAGE_NAME}", f"{text}\n".encode())
