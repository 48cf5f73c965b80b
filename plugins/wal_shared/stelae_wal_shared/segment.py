"""A segment in memory, and the names of segment files."""

from __future__ import annotations

from stelae_wal_shared.index import SharedSegmentIndex

SEGMENT_SUFFIX = ".seg"
NEW_SEGMENT_SUFFIX = ".new"


class SharedSegment:
    """One segment file of the node's log. Its attributes change only under the engine's lock.

    Attributes:
        number: its position in the order of writing, from 1; never used again.
        nonce: see ``format``.
        path: of the file.
        start, end: offsets where its records begin and end.
        entries: number of entries that were written to it, moved entries included.
        live: number of its entries that are valid. At 0 the segment can be removed.
        footer: the index is in a footer.
        index: the index in memory; ``None`` while it is only in the footer.
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
    """Return the path of the segment with this number."""
    return f"{directory}/{number:012d}{SEGMENT_SUFFIX}"


def new_segment_path(directory: str, nonce: int) -> str:
    """Return the path of a future segment. It is never used twice, because a worker may still make an earlier file."""
    return f"{directory}/{nonce:016x}{NEW_SEGMENT_SUFFIX}"


def number_of(name: str) -> int | None:
    """Return the number in the name of a segment; ``None`` for other names."""
    digits = name.removesuffix(SEGMENT_SUFFIX)
    if name.endswith(SEGMENT_SUFFIX) and digits.isascii() and digits.isdigit() and len(digits) == 12:
        return int(digits)
    return None
