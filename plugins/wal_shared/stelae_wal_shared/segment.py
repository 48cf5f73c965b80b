"""A segment as the engine knows it, and a log's share in it."""

from __future__ import annotations

from stelae_wal_shared.index import SharedSegmentIndex

SEGMENT_SUFFIX = ".seg"
UNBORN_SUFFIX = ".new"


class SharedSegment:
    """One file of the node's log. Changes under the engine's lock.

    Attributes:
        number: its place in the order of writing, from 1; never used again.
        nonce: see ``format``.
        path: the file.
        start, end: where its records are, in bytes.
        entries: how many entries were written to it, moved ones included.
        live: how many of them are the valid ones of their index; at 0 the segment can go.
        footer: a footer has the index.
        index: where its records stand; ``None`` while it is left in the footer.
    """

    __slots__ = ("end", "entries", "footer", "index", "live", "nonce", "number", "path", "start")

    def __init__(self, number: int, nonce: int, path: str, start: int, end: int, entries: int = 0) -> None:
        self.number = number
        self.nonce = nonce
        self.path = path
        self.start = start
        self.end = end
        self.entries = entries
        self.live = 0
        self.footer = False
        self.index: SharedSegmentIndex | None = None


def segment_path(directory: str, number: int) -> str:
    """Path of the segment of a number."""
    return f"{directory}/{number:012d}{SEGMENT_SUFFIX}"


def unborn_path(directory: str, nonce: int) -> str:
    """Path of a segment in the making. Never used twice: a worker may still be busy with an earlier one."""
    return f"{directory}/{nonce:016x}{UNBORN_SUFFIX}"


def number_of(name: str) -> int | None:
    """The number in the name of a segment; ``None`` for other names."""
    digits = name.removesuffix(SEGMENT_SUFFIX)
    if name.endswith(SEGMENT_SUFFIX) and digits.isascii() and digits.isdigit() and len(digits) == 12:
        return int(digits)
    return None
