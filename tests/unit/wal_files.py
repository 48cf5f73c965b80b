"""What is done to a file behind an engine's back, for the tables of bad input of the log engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from crc32c import crc32c

from stelae.testing.wal_harness import VirtualHarness
from stelae_shared.log_files.page_slots import SLOT_BYTES

Change: TypeAlias = Callable[[bytes], bytes | None]
"""What becomes of a file's contents; ``None``: a directory stands in its place."""


def cut_to(size: int) -> Change:
    """Cut to ``size`` bytes; if it is below zero, cut that many from the end."""
    return lambda data: data[:size]


def zeroed(start: int = 0, stop: int | None = None) -> Change:
    """Zeros from one offset to another, or to the end."""

    def change(data: bytes) -> bytes:
        end = len(data) if stop is None else stop
        return data[:start] + bytes(end - start) + data[end:]

    return change


def flipped(*offsets: int) -> Change:
    """One bit in each of these bytes, counted from the end if below zero."""

    def change(data: bytes) -> bytes:
        found = bytearray(data)
        for offset in offsets:
            found[offset] ^= 4
        return bytes(found)

    return change


def foreign(data: bytes) -> bytes:
    """As long as before, and of something else."""
    return (b"\x89PNG\r\n\x1a\n" + b"not a log at all " * (len(data) // 17 + 1))[: len(data)]


def a_directory(data: bytes) -> None:
    """A directory in its place."""
    return None


def of_version(version: int, size: int, at: int = 8, copies: int = 1, every: int = 0) -> Change:
    """Another format version in the record of ``size`` bytes that the file begins with, its checksum being right;
    the same in further copies of it, every ``every`` bytes."""

    def change(data: bytes) -> bytes:
        for copy in range(copies):
            start = copy * every
            record = bytearray(data[start : start + size - 4])
            record[at] = version
            sealed = bytes(record) + crc32c(bytes(record)).to_bytes(4, "little")
            data = data[:start] + sealed + data[start + size :]
        return data

    return change


def of_slot_version(version: int, at: int = 8) -> Change:
    """The same in both slots of a file of page slots."""

    def change(data: bytes) -> bytes | None:
        size = 24 + int.from_bytes(data[10:12], "little") + 4
        return of_version(version, size, at, copies=2, every=SLOT_BYTES)(data)

    return change


def put(harness: VirtualHarness, path: str, data: bytes | None) -> None:
    """Put these contents, or a directory, in a file's place."""
    if data is not None:
        harness.write(path, data)
    else:
        if harness.disk.exists(path):
            harness.disk.remove(path)
        harness.disk.make_directory(path)
    harness.disk.sync_directory(path.rpartition("/")[0])
