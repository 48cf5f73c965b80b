"""A small record in two slots of one file. Each slot is a separate page.

Disks and the system's cache write, lose and tear whole pages. So a record that changes in place has two slots in
different pages, and a write changes only one. After a power failure during the write, or a failed sync, the other slot
is still valid. A change in place needs no space, so a node with a full disk can start and free space.

::

    slot    magic, format version, length of the payload, count of changes | payload | CRC32C | zeros

The record of a slot is at most one sector long. The valid slot with the higher count is the record. There are two ways
to change it:

- ``write_slot`` writes the older slot. It costs one sync. The later loss of a slot may cost the last change.
- ``write_both`` writes one slot after the other. It costs two syncs. The later loss of a slot costs nothing. So a slot
  that the disk does not return counts as lost, and the next change writes it again.
"""

from __future__ import annotations

import struct
from contextlib import closing
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import Corrupt, Foreign, FutureVersion, StorageError
from stelae.spi.services import File, Files

SLOT_BYTES = 4096
"""A page of the system's cache, and the largest unit in which disks store data."""

RECORD_BYTES_MAX = 512
"""The smallest unit that a disk writes atomically. Only these bytes of a slot are read."""

_LEAD = struct.Struct("<8sHHxxxxQ")
_CRC = struct.Struct("<I")
_VERSION_AT = 8
_OFFSETS = (0, SLOT_BYTES)

PAYLOAD_AT = _LEAD.size
"""Offset of the payload in a slot."""


class RecordFormat(NamedTuple):
    """The format of one kind of record.

    Attributes:
        magic: the first eight bytes of each slot.
        version: version of the format. Other versions are refused.
        payload_bytes: length of the payload.
    """

    magic: bytes
    version: int
    payload_bytes: int


class PageSlot(NamedTuple):
    """The contents of a valid slot. ``changes`` rises by one with every change."""

    changes: int
    payload: bytes


def create_slots(files: Files, path: str, form: RecordFormat, first: PageSlot) -> None:
    """Create a file with the same record in both slots; durable on return."""
    files.replace(path, 2 * _encode(form, first))


def read_newest(files: Files, path: str, form: RecordFormat, *, written_both: bool = False) -> PageSlot:
    """Return the record of a file. ``written_both``: only ``write_both`` changes it, so one readable slot is enough.

    Raises:
        StorageError: the disk does not return a slot, and the other one is not enough.
        Corrupt: neither slot is valid.
        Foreign: the format is older than the first release.
        FutureVersion: the format is newer than this release.
        FileNotFoundError: there is no such file.
    """
    with closing(files.open(path)) as file:
        return max(slot for slot in _read(file, form, written_both=written_both) if slot is not None)


def write_slot(files: Files, path: str, form: RecordFormat, changed: PageSlot) -> None:
    """Write the next version of a record over the older slot, durably."""
    with closing(files.open(path, writable=True)) as file:
        _write(file, form, changed.changes % 2, changed)


def write_both(files: Files, path: str, form: RecordFormat, payload: bytes) -> None:
    """Change the record in both slots, durably.

    It first writes the slot that is invalid, or else the newer one. The other slot was durable before that one was
    written, and stays valid until the first write is durable.

    Raises:
        SyncFailed: one slot, or both, still have the old record.
        Corrupt, Foreign, FutureVersion: as ``read_newest``; nothing was written.
    """
    with closing(files.open(path, writable=True)) as file:
        counts = [-1 if slot is None else slot.changes for slot in _read(file, form, written_both=True)]
        changed = PageSlot(max(counts) + 1, payload)
        first = 0 if counts[1] >= 0 and (counts[0] < 0 or counts[0] >= counts[1]) else 1
        for number in (first, 1 - first):
            _write(file, form, number, changed)


def _read(file: File, form: RecordFormat, *, written_both: bool) -> list[PageSlot | None]:
    """Return both slots, of which at least one is valid; ``None`` for an invalid one."""
    raw: list[bytes] = []
    unread: StorageError | None = None
    for offset in _OFFSETS:
        try:
            raw.append(file.pread(RECORD_BYTES_MAX, offset))
        except StorageError as error:
            if not written_both:
                raise
            raw.append(b"")
            unread = error
    found = [_decode(slot, form, file.path, offset) for slot, offset in zip(raw, _OFFSETS, strict=True)]
    if found == [None, None]:
        if unread is not None:
            raise unread
        _refuse_older(raw, form, file.path)
        fact = f"neither of its two slots is valid, and it begins with {raw[0][:8]!r}"
        raise Corrupt(fact, path=file.path, offset=0)
    return found


def _write(file: File, form: RecordFormat, number: int, slot: PageSlot) -> None:
    file.pwritev([_encode(form, slot)], _OFFSETS[number], dsync=True)


def _encode(form: RecordFormat, slot: PageSlot) -> bytes:
    assert len(slot.payload) == form.payload_bytes <= RECORD_BYTES_MAX - _LEAD.size - _CRC.size
    raw = _LEAD.pack(form.magic, form.version, form.payload_bytes, slot.changes) + slot.payload
    return (raw + _CRC.pack(crc32c(raw))).ljust(SLOT_BYTES, b"\0")


def _decode(raw: bytes, form: RecordFormat, path: str, offset: int) -> PageSlot | None:
    if len(raw) < RECORD_BYTES_MAX or raw[: len(form.magic)] != form.magic:
        return None
    _, version, size, changes = _LEAD.unpack_from(raw)
    end = PAYLOAD_AT + size
    if end + _CRC.size > len(raw) or _CRC.unpack_from(raw, end)[0] != crc32c(raw[:end]):
        return None
    if version > form.version:
        fact = f"format {version} is newer than {form.version}, the newest known here"
        raise FutureVersion(fact, path=path, offset=offset + _VERSION_AT)
    if version < form.version:
        raise _older(version, form, path, offset)
    return PageSlot(changes, raw[PAYLOAD_AT:end]) if size == form.payload_bytes else None


def _refuse_older(raw: list[bytes], form: RecordFormat, path: str) -> None:
    """Refuse a file of an older format, whose checksums are at other offsets, by the version in its slots."""
    written = [slot for slot in raw if slot.strip(b"\0")]
    ours = [slot for slot in written if len(slot) > _VERSION_AT + 1 and slot[: len(form.magic)] == form.magic]
    versions = [int.from_bytes(slot[_VERSION_AT : _VERSION_AT + 2], "little") for slot in ours]
    if versions and len(versions) == len(written) and max(versions) < form.version:
        raise _older(max(versions), form, path, 0)


def _older(version: int, form: RecordFormat, path: str, offset: int) -> Foreign:
    fact = f"no release wrote format {version}; the first one wrote {form.version}"
    return Foreign(fact, path=path, offset=offset + _VERSION_AT)
