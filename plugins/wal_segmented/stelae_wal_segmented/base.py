"""The base file of a log: that the log exists, where it begins, and whether it may be used.

The file has two slots of 4096 bytes. A change goes to the slot that does not hold the newest
version, in place and synced: it needs no space, so a full disk can still be freed by collection,
and a crash inside it leaves the older slot. Each slot is a page of its own, because disks and the
system's cache write, lose and tear whole pages. It is durable before anything is removed that it makes
superfluous, so an emptied log knows its base op id (durability rule 4), and an interrupted removal
is finished at the next start.

It also says which segment is the newest one. That is written when a segment takes its first group,
before the group: nothing is acknowledged in a segment whose loss would not be noticed. Once a log is
closed or cooled, the file says how long that segment is: what is cut from it later is noticed, too."""

from __future__ import annotations

import struct
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from stelae.spi.errors import Corrupt, Foreign, FutureVersion
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.services import Files
from stelae_wal_segmented.format import tablet_of

BASE_MAGIC = b"stelwalb"
BASE_VERSION = 2
SLOT_BYTES = 4096

_BASE = struct.Struct("<8sHHIQQQQQQQQQ64s")
_CRC = struct.Struct("<I")
_USED_BYTES = _BASE.size + _CRC.size


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
    slots = [bytes(SLOT_BYTES), bytes(SLOT_BYTES)]
    slots[base.version % 2] = _encode(base)
    files.replace(path, b"".join(slots))


def write_base(files: Files, path: str, base: Base) -> None:
    """Write a base of a higher version over the older slot; durable on return."""
    with closing(files.open(path, writable=True)) as file:
        file.pwritev([_encode(base)], base.version % 2 * SLOT_BYTES, dsync=True)


def read_base(files: Files, path: str) -> Base:
    """Return what a base file says.

    Raises:
        Corrupt: neither slot is valid.
        Foreign: a format from before the first release.
        FutureVersion: a format or a use of the log that this release does not know.
        FileNotFoundError: there is no such file.
    """
    with closing(files.open(path)) as file:
        slots = [(file.pread(_USED_BYTES, offset), offset) for offset in (0, SLOT_BYTES)]
    found = [base for slot, offset in slots if (base := _decode(slot, path, offset)) is not None]
    if not found:
        raise Corrupt("the base file fails its checksum", path=path, offset=0)
    return max(found, key=lambda base: base.version)


def _encode(base: Base) -> bytes:
    raw = _BASE.pack(
        BASE_MAGIC,
        BASE_VERSION,
        base.use,
        0,
        base.log.generation,
        base.base.term,
        base.base.index,
        base.first_sequence,
        base.newest_sequence,
        base.newest_end,
        base.durable.term,
        base.durable.index,
        base.version,
        base.log.tablet_id.encode(),
    )
    return (raw + _CRC.pack(crc32c(raw))).ljust(SLOT_BYTES, b"\0")


def _decode(data: bytes, path: str, offset: int) -> Base | None:
    if len(data) < _USED_BYTES or data[: len(BASE_MAGIC)] != BASE_MAGIC:
        return None
    if _CRC.unpack_from(data, _BASE.size)[0] != crc32c(data[: _BASE.size]):
        return None
    fields = _BASE.unpack_from(data)
    if fields[1] < BASE_VERSION:
        fact = f"base file format {fields[1]} is of no release; the first one wrote {BASE_VERSION}"
        raise Foreign(fact, path=path, offset=offset + 8)
    if fields[1] > BASE_VERSION:
        fact = f"base file format {fields[1]} is newer than {BASE_VERSION}, the newest known here"
        raise FutureVersion(fact, path=path, offset=offset + 8)
    if fields[2] not in list(LogUse):
        fact = f"use {fields[2]} of a log is unknown here; known are 0 to {max(LogUse):d}"
        raise FutureVersion(fact, path=path, offset=offset + 10)
    return Base(
        log=LogId(tablet_of(fields[13], path), fields[4]),
        base=OpId(fields[5], fields[6]),
        first_sequence=fields[7],
        newest_sequence=fields[8],
        newest_end=fields[9],
        use=LogUse(fields[2]),
        durable=OpId(fields[10], fields[11]),
        version=fields[12],
    )
