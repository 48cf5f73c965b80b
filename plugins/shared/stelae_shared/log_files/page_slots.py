"""A small record in two slots of one file, each slot a page of its own.

Disks and the system's cache write, lose and tear whole pages. So a record that changes in place is kept in two of them,
and a write touches one: power lost in it, or a sync of it that fails, leaves the other slot. A change in place needs no
space, so a full disk keeps nobody from starting or from freeing space.

::

    slot    magic, format version, length of the payload, count of changes | payload | CRC32C | zeros

A slot's record is at most a sector long.
The valid slot with the higher count is the record. There are two ways to change it:

- ``write_slot`` writes one slot, the older one. It costs one sync. A slot that is lost later may cost the last change.
- ``write_both`` writes one slot after the other. It costs two syncs. A slot that is lost later costs nothing.
"""

from __future__ import annotations

import struct
from contextlib import closing
from typing import NamedTuple

from crc32c import crc32c

from stelae.spi.errors import Corrupt, Foreign, FutureVersion
from stelae.spi.services import File, Files

SLOT_BYTES = 4096
"""A page of the system's cache, and the largest unit in which disks store data."""

RECORD_BYTES_MAX = 512
"""The least that a disk writes whole. So much of a slot is read."""

_LEAD = struct.Struct("<8sHHxxxxQ")
_CRC = struct.Struct("<I")
_VERSION_AT = 8
_OFFSETS = (0, SLOT_BYTES)

PAYLOAD_AT = _LEAD.size
"""Where a slot's payload begins."""


class RecordFormat(NamedTuple):
    """How a kind of record is told from others.

    Attributes:
        magic: eight bytes that each slot begins with.
        version: of the format; others are refused.
        payload_bytes: length of the payload.
    """

    magic: bytes
    version: int
    payload_bytes: int


class PageSlot(NamedTuple):
    """What a valid slot holds. ``changes`` rises by one with every change."""

    changes: int
    payload: bytes


def create_slots(files: Files, path: str, form: RecordFormat, first: PageSlot) -> None:
    """Write a new file with the same in both slots; durable on return."""
    files.replace(path, 2 * _encode(form, first))


def read_newest(files: Files, path: str, form: RecordFormat) -> PageSlot:
    """Return the record of a file.

    Raises:
        Corrupt: neither slot is valid.
        Foreign: a format from before the first release.
        FutureVersion: a format that this release does not know.
        FileNotFoundError: there is no such file.
    """
    with closing(files.open(path)) as file:
        return max(slot for slot in _read(file, form) if slot is not None)


def write_slot(files: Files, path: str, form: RecordFormat, changed: PageSlot) -> None:
    """Write the next version of a record over the older slot, durably."""
    with closing(files.open(path, writable=True)) as file:
        _write(file, form, changed.changes % 2, changed)


def write_both(files: Files, path: str, form: RecordFormat, payload: bytes) -> None:
    """Change the record in both slots, durably.

    It begins with the slot that is invalid or else newer: the other one has been durable since before that was
    written, and stays so until this one is.

    Raises:
        SyncFailed: one slot, or both, have what they had before.
        Corrupt, Foreign, FutureVersion: as ``read_newest``; nothing was written.
    """
    with closing(files.open(path, writable=True)) as file:
        counts = [-1 if slot is None else slot.changes for slot in _read(file, form)]
        changed = PageSlot(max(counts) + 1, payload)
        first = 0 if counts[1] >= 0 and (counts[0] < 0 or counts[0] >= counts[1]) else 1
        for number in (first, 1 - first):
            _write(file, form, number, changed)


def _read(file: File, form: RecordFormat) -> list[PageSlot | None]:
    """Both slots, of which one at least is valid."""
    raw = [file.pread(RECORD_BYTES_MAX, offset) for offset in _OFFSETS]
    found = [_decode(slot, form, file.path, offset) for slot, offset in zip(raw, _OFFSETS, strict=True)]
    if found == [None, None]:
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
    """Name the format of a file whose checksums are in other places: all that is written there says an older one."""
    written = [slot for slot in raw if slot.strip(b"\0")]
    ours = [slot for slot in written if len(slot) > _VERSION_AT + 1 and slot[: len(form.magic)] == form.magic]
    versions = [int.from_bytes(slot[_VERSION_AT : _VERSION_AT + 2], "little") for slot in ours]
    if versions and len(versions) == len(written) and max(versions) < form.version:
        raise _older(max(versions), form, path, 0)


def _older(version: int, form: RecordFormat, path: str, offset: int) -> Foreign:
    fact = f"format {version} is of no release; the first one wrote {form.version}"
    return Foreign(fact, path=path, offset=offset + _VERSION_AT)
