"""Records that are no entries: a log begins, ends, or lets go of its oldest entries.

They are durable on return, and go where entries no longer may (``SharedWriter.room``), so that a full disk
can be freed. A record that begins or ends a log is written twice, each time in a group of its own. Of one that begins a
log, filling puts the second copy in another page: no page that is lost can hide that the log exists. A log whose end is
lost with a page is there again, and the kernel drops it again."""

from __future__ import annotations

from stelae.spi.errors import Full, StorageError
from stelae.spi.ids import OpId
from stelae_wal_shared.book import Book
from stelae_wal_shared.commit import Committer
from stelae_wal_shared.format import RECORD_BYTES, RecordKind
from stelae_wal_shared.group import RecordGroup
from stelae_wal_shared.head import PAGE_BYTES
from stelae_wal_shared.replay import FILLING
from stelae_wal_shared.tablet_log import SharedTabletLog
from stelae_wal_shared.tail import Tail
from stelae_wal_shared.writer import SharedWriter


def write_control(
    book: Book, tail: Tail, committer: Committer, log: SharedTabletLog, kind: RecordKind, op_id: OpId, body: bytes = b""
) -> None:
    """Write one control record of a log, durably.

    Raises:
        Full: there is no space; nothing has changed.
        StorageError: it is not known to be durable; the caller's change did not happen. A log that was to be collected
            takes no more appends.
    """
    concerned = [log] if kind is RecordKind.BASE else []
    try:
        writer = _written(tail, log, kind, op_id, body)
    except Full:
        # Closing the segment gives back what is left of its space: that may be enough.
        _give_up(committer, concerned)
        try:
            writer = _written(tail, log, kind, op_id, body)
        except Full:
            _give_up(committer, concerned)
            raise
    except (StorageError, OSError) as error:
        raise committer.fail_all(error, concerned) from error
    with book.lock:
        log.order += 1
        writer.segment.end = writer.end
    book.settle()


def _written(tail: Tail, log: SharedTabletLog, kind: RecordKind, op_id: OpId, body: bytes) -> SharedWriter:
    """Write the record, with one call in as many groups as it takes, and return what it went to."""
    writer = tail.writer or tail.fresh()
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


def _give_up(committer: Committer, concerned: list[SharedTabletLog]) -> None:
    """Close the segment that had no space.

    Raises:
        SyncFailed: what was written before could not be synced.
    """
    failed = committer.settle_full(concerned)
    if failed is not None:
        raise failed
