"""Names of the files that belong to one tablet's logs, all in the directory ``wals/<tablet-id>/``.

============================= ===================================================================
``g3.base``                   base file of generation 3: which log this is, and where it begins
``g3-000000000007.seg``       its seventh segment; the segments of a log are numbered without gaps
``g3-<16 hex digits>.new``    the file of a future segment; has no meaning until it is renamed
``g3-000000000007.reuse``     the file of a collected segment, kept for re-use; has no meaning
============================= ===================================================================

The name of a future segment is unique on the node. A worker may still be making an earlier one, which was given up,
when the next one is begun. Each worker removes only the file that it made itself.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from stelae.spi.services import Files

_BASE = re.compile(r"g(0|[1-9][0-9]{0,18})\.base")
_SEGMENT = re.compile(r"g(0|[1-9][0-9]{0,18})-([0-9]{12,20})\.seg")
_NEW_SEGMENT = re.compile(r"g(0|[1-9][0-9]{0,18})-[0-9a-f]{16}\.new")
_REUSABLE = re.compile(r"g(0|[1-9][0-9]{0,18})-([0-9]{12,20})\.reuse")
_TEMPORARY = re.compile(r"\.g(0|[1-9][0-9]{0,18})\.base\.tmp")


class LogFileKind(Enum):
    """The kind of a file, by its name."""

    BASE = auto()
    """The base file of a log."""
    SEGMENT = auto()
    """A segment."""
    NEW_SEGMENT = auto()
    """The file of a future segment."""
    REUSABLE = auto()
    """The file of a collected segment, kept for re-use."""
    TEMPORARY = auto()
    """A base file that was being created."""


DISPOSABLE = frozenset({LogFileKind.NEW_SEGMENT, LogFileKind.REUSABLE, LogFileKind.TEMPORARY})
"""Kinds of files without content that counts. They are removed at start-up."""


class LogFileName(NamedTuple):
    """A parsed file name. ``sequence`` is 0 unless the file is or was a segment."""

    kind: LogFileKind
    generation: int
    sequence: int


def base_name(generation: int) -> str:
    """Return the name of a log's base file."""
    return f"g{generation}.base"


def segment_name(generation: int, sequence: int) -> str:
    """Return the name of a segment."""
    return f"g{generation}-{sequence:012d}.seg"


def new_segment_name(generation: int, nonce: int) -> str:
    """Return the name of the file of a future segment; ``nonce`` is drawn for this file alone."""
    return f"g{generation}-{nonce:016x}.new"


def reusable_name(generation: int, sequence: int) -> str:
    """Return the name that the file of a collected segment gets when it is kept for re-use."""
    return f"g{generation}-{sequence:012d}.reuse"


def parse(name: str) -> LogFileName | None:
    """Parse a file name; return ``None`` if it is not a name of this engine."""
    if found := _SEGMENT.fullmatch(name):
        return LogFileName(LogFileKind.SEGMENT, int(found[1]), int(found[2]))
    if found := _BASE.fullmatch(name):
        return LogFileName(LogFileKind.BASE, int(found[1]), 0)
    if found := _NEW_SEGMENT.fullmatch(name):
        return LogFileName(LogFileKind.NEW_SEGMENT, int(found[1]), 0)
    if found := _REUSABLE.fullmatch(name):
        return LogFileName(LogFileKind.REUSABLE, int(found[1]), int(found[2]))
    if found := _TEMPORARY.fullmatch(name):
        return LogFileName(LogFileKind.TEMPORARY, int(found[1]), 0)
    return None


def sequences_of(files: Files, directory: str, generation: int) -> list[int]:
    """Return the numbers of one generation's segments in a directory, in ascending order."""
    names = (parse(name) for name in files.listdir(directory))
    return sorted(
        name.sequence
        for name in names
        if name is not None and name.kind is LogFileKind.SEGMENT and name.generation == generation
    )
