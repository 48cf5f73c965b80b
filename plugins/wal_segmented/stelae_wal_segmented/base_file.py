"""The base file of a log: it records that the log exists, where it begins, and whether it may be used.

The file has two slots (``stelae_shared.log_files.page_slots``). A change is written to the older slot, in place and
synced. It needs no space, so collection can free a full disk. A crash during the change leaves the newer slot. The
change is durable before anything is removed that it makes superfluous. So an emptied log knows its base op id
(durability rule 4), and the next start finishes an interrupted removal.

The file also names the newest segment. It does so before the segment takes its first group, so nothing is acknowledged
in a segment whose loss would go unnoticed. When a log is closed or cooled, the file also records how long the newest
segment is. So recovery notices if the segment is truncated later.

The payload of a slot: use, generation of the log, op id of the base, first sequence, newest sequence, newest end, last
durable op id, tablet id."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from stelae.spi.errors import FutureVersion
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.services import Files
from stelae_shared.log_files.page_slots import PAYLOAD_AT, PageSlot, RecordFormat, create_slots, read_newest, write_slot
from stelae_wal_segmented.format import tablet_of

BASE_MAGIC = b"stelwalb"
BASE_VERSION = 3

_BASE = struct.Struct("<HxxxxxxQQQQQQQQ64s")
_FORMAT = RecordFormat(BASE_MAGIC, BASE_VERSION, _BASE.size)


class LogUse(IntEnum):
    """What may be done with a log. The numbers are stored and never reused."""

    LIVE = 0
    """The log may be used."""
    DROPPING = 1
    """The removal of the log has begun. The next start finishes it."""
    LEAVING = 2
    """The log is being moved to quarantine. It may only be moved further or removed."""
    SYNC_FAILED = 3
    """A write or sync failed. Entries behind ``durable`` are not trusted, and the log takes no appends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecord:
    """The contents of a base file.

    Attributes:
        log: the log that the file belongs to.
        base: op id of the last collected entry, or the starting point of the log.
        first_sequence: number of the first segment that is not collected.
        newest_sequence: number of the newest segment that took entries; 0: no segment did. The segment must exist
            unless its number is below ``first_sequence``.
        newest_end: everything before this offset of the newest segment is durable and stays so; 0: unknown.
        use: see ``LogUse``.
        durable: last durable op id when a write or sync failed; else zero.
        version: number of changes. The slot with the higher version is valid.
    """

    log: LogId
    base: OpId
    first_sequence: int = 1
    newest_sequence: int = 0
    newest_end: int = 0
    use: LogUse = LogUse.LIVE
    durable: OpId = ZERO
    version: int = 1

    def changed(
        self,
        *,
        base: OpId | None = None,
        first_sequence: int | None = None,
        newest_sequence: int | None = None,
        newest_end: int | None = None,
        use: LogUse | None = None,
        durable: OpId | None = None,
    ) -> BaseRecord:
        """Return the next version with these fields changed. A new ``newest_sequence`` resets ``newest_end``."""
        if newest_end is None:
            newest_end = self.newest_end if newest_sequence is None else 0
        return BaseRecord(
            log=self.log,
            base=self.base if base is None else base,
            first_sequence=self.first_sequence if first_sequence is None else first_sequence,
            newest_sequence=self.newest_sequence if newest_sequence is None else newest_sequence,
            newest_end=newest_end,
            use=self.use if use is None else use,
            durable=self.durable if durable is None else durable,
            version=self.version + 1,
        )


def unknown_base(log: LogId) -> BaseRecord:
    """Return a record in place of one that could not be read. ``drop`` overwrites the file; ``set_aside`` does not."""
    return BaseRecord(log=log, base=ZERO, use=LogUse.LEAVING, version=1 << 62)


def create_base(files: Files, path: str, base: BaseRecord) -> None:
    """Create the base file of a new log; durable on return."""
    create_slots(files, path, _FORMAT, _slot_of(base))


def write_base(files: Files, path: str, base: BaseRecord) -> None:
    """Write the next version over the older slot; durable on return."""
    write_slot(files, path, _FORMAT, _slot_of(base))


def read_base(files: Files, path: str) -> BaseRecord:
    """Return the contents of a base file.

    Raises:
        Corrupt, Foreign, FutureVersion, FileNotFoundError: as ``read_newest``.
        FutureVersion: also for a ``use`` that this release does not know.
    """
    version, payload = read_newest(files, path, _FORMAT)
    use, generation, term, index, first, newest, newest_end, durable_term, durable_index, tablet = _BASE.unpack(payload)
    if use not in list(LogUse):
        fact = f"use {use} of a log is newer than {max(LogUse):d}, the newest known here"
        raise FutureVersion(fact, path=path, offset=PAYLOAD_AT)
    return BaseRecord(
        log=LogId(tablet_of(tablet, path), generation),
        base=OpId(term, index),
        first_sequence=first,
        newest_sequence=newest,
        newest_end=newest_end,
        use=LogUse(use),
        durable=OpId(durable_term, durable_index),
        version=version,
    )


def _slot_of(base: BaseRecord) -> PageSlot:
    payload = _BASE.pack(
        base.use,
        base.log.generation,
        base.base.term,
        base.base.index,
        base.first_sequence,
        base.newest_sequence,
        base.newest_end,
        base.durable.term,
        base.durable.index,
        base.log.tablet_id.encode(),
    )
    return PageSlot(base.version, payload)
