"""Writes the records that are not entries: a log is created, dropped, or gets a new base.

They are durable on return. They may use the space behind ``SharedWriter.room``, which entries may not, so that a full
disk can be freed. A record that creates or drops a log is written twice, each time in its own group. Filling puts the
second copy of a creation in another page, so that the loss of one page never hides a log. If the record of a drop is
lost with a page, the log exists again, and the kernel drops it again."""

from __future__ import annotations

from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import OpId
from stelae_wal_shared.commit import Committer
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.format import RECORD_BYTES, RecordKind
from stelae_wal_shared.group import RecordGroup
from stelae_wal_shared.head import PAGE_BYTES
from stelae_wal_shared.replay import FILLING
from stelae_wal_shared.tablet_log import SharedTabletLog
from stelae_wal_shared.tail import LogTail
from stelae_wal_shared.writer import SharedWriter


def write_control(
    state: EngineState,
    tail: LogTail,
    committer: Committer,
    log: SharedTabletLog,
    kind: RecordKind,
    op_id: OpId,
    body: bytes = b"",
) -> None:
    """Write one control record of a log, durably.

    Raises:
        Full: there is no space; nothing has changed.
        StorageError: the record may not be durable; the caller must not make the change. If it was a new base, the log
            takes no more appends.
    """
    concerned = [log] if kind is RecordKind.BASE else []
    try:
        writer = _written(tail, log, kind, op_id, body)
    except Full:
        # Closing the segment releases the rest of its space, which may be enough.
        _close_full_segment(committer, concerned)
        try:
            writer = _written(tail, log, kind, op_id, body)
        except Full:
            _close_full_segment(committer, concerned)
            raise
    except (StorageError, OSError) as error:
        raise committer.fail_all(error, concerned) from error
    with state.lock:
        log.order += 1
        writer.segment.end = writer.end
    state.mark_all_durable()


def _written(tail: LogTail, log: SharedTabletLog, kind: RecordKind, op_id: OpId, body: bytes) -> SharedWriter:
    """Write the record with one call, in one or two groups; return the writer."""
    writer = tail.writer or tail.begin_segment()
    buffers, size = [], 0
    for left in range(1 if kind in (RecordKind.CREATE, RecordKind.DROP) else 0, -1, -1):
        group = RecordGroup(writer.segment.nonce, writer.end + size, writer.synced)
        filling = -(writer.end + size + group.size + RECORD_BYTES + len(body)) % PAGE_BYTES
        filled = body + FILLING * filling if left and kind is RecordKind.CREATE else body
        group.add(kind, log.number, log.order + 1, op_id, body=filled)
        buffers.extend(group.buffers())
        size += group.size
    writer.write(buffers, size, sync=True)
    return writer


def _close_full_segment(committer: Committer, concerned: list[SharedTabletLog]) -> None:
    """Close the segment that had no space.

    Raises:
        SyncFailed: earlier groups could not be synced.
    """
    failed = committer.close_full_segment(concerned)
    if failed is not None:
        raise failed
