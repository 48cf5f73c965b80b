"""The base file of a log: that the log exists, where it begins, and whether it may be used.

The file has two slots (``stelae_shared.log_files.page_slots``). A change goes to the older one, in place and
synced: it needs no space, so a full disk can still be freed by collection, and a crash inside it leaves the
newer slot. It is durable before anything is removed that it makes superfluous, so an emptied log knows its
base op id (durability rule 4), and an interrupted removal is finished at the next start.

It also says which segment is the newest one. That is written when a segment takes its first group,
before the group: nothing is acknowledged in a segment whose loss would not be noticed. Once a log is
closed or cooled, the file says how long that segment is: what is cut from it later is noticed, too.

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
    """What may be done with a log. Stored; numbers are never reused."""

    LIVE = 0
    """Everything."""
    DROPPING = 1
    """Its removal began and is finished at the next start."""
    LEAVING = 2
    """It is being moved to quarantine: nothing but moving on and removing."""
    SYNC_FAILED = 3
    """A write or sync failed once: nothing behind ``durable`` is trusted, nothing is appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What the base file says.

    Attributes:
        log: whose base it is.
        base: op id of the last entry that was collected, or the starting point.
        first_sequence: number of the first segment that still counts.
        newest_sequence: number of the newest segment that took entries; it must be there unless it
            is below ``first_sequence``. 0: none did.
        newest_end: everything before this offset of that segment is durable, for ever. 0: unknown.
        use: see ``LogUse``.
        durable: last durable op id when a sync failed; else zero.
        version: counts the changes; the higher of the two slots is valid.
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
    ) -> Base:
        """The next version, with these fields changed. Of another newest segment no end is known yet."""
        if newest_end is None:
            newest_end = self.newest_end if newest_sequence is None else 0
        return Base(
            log=self.log,
            base=self.base if base is None else base,
            first_sequence=self.first_sequence if first_sequence is None else first_sequence,
            newest_sequence=self.newest_sequence if newest_sequence is None else newest_sequence,
            newest_end=newest_end,
            use=self.use if use is None else use,
            durable=self.durable if durable is None else durable,
            version=self.version + 1,
        )


def unknown_base(log: LogId) -> Base:
    """What stands for a base that could not be read: setting the log aside writes nothing over it, dropping it does."""
    return Base(log=log, base=ZERO, use=LogUse.LEAVING, version=1 << 62)


def create_base(files: Files, path: str, base: Base) -> None:
    """Write the base file of a new log; durable on return."""
    create_slots(files, path, _FORMAT, _slot_of(base))


def write_base(files: Files, path: str, base: Base) -> None:
    """Write a base of the next version over the older slot; durable on return."""
    write_slot(files, path, _FORMAT, _slot_of(base))


def read_base(files: Files, path: str) -> Base:
    """Return what a base file says.

    Raises:
        Corrupt, Foreign, FutureVersion, FileNotFoundError: as ``read_newest``.
        FutureVersion: also for a use of the log that this release does not know.
    """
    version, payload = read_newest(files, path, _FORMAT)
    use, generation, term, index, first, newest, newest_end, durable_term, durable_index, tablet = _BASE.unpack(payload)
    if use not in list(LogUse):
        fact = f"use {use} of a log is unknown here; known are 0 to {max(LogUse):d}"
        raise FutureVersion(fact, path=path, offset=PAYLOAD_AT)
    return Base(
        log=LogId(tablet_of(tablet, path), generation),
        base=OpId(term, index),
        first_sequence=first,
        newest_sequence=newest,
        newest_end=newest_end,
        use=LogUse(use),
        durable=OpId(durable_term, durable_index),
        version=version,
    )


def _slot_of(base: Base) -> PageSlot:
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
