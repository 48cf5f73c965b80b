"""Names of the files that belong to one tablet's logs, all in the directory ``wals/<tablet-id>/``.

============================= ================================================================
``g3.base``                   the base of generation 3: which log this is, and where it begins
``g3-000000000007.seg``       its seventh segment; the numbers of a log are consecutive
``g3-<16 hex digits>.new``    a segment in the making; means nothing until it is renamed
``g3-000000000007.old``       the file of a collected segment, kept to be used again; means nothing
============================= ================================================================

A segment in the making has a name that no other one of the node ever had: one that was given up may
still be under way on a worker when the next is begun, and each removes only what it made itself.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

from stelae.spi.services import Files

_BASE = re.compile(r"g(0|[1-9][0-9]{0,18})\.base")
_SEGMENT = re.compile(r"g(0|[1-9][0-9]{0,18})-([0-9]{12,20})\.seg")
_UNBORN = re.compile(r"g(0|[1-9][0-9]{0,18})-[0-9a-f]{16}\.new")
_KEPT = re.compile(r"g(0|[1-9][0-9]{0,18})-([0-9]{12,20})\.old")
_TEMPORARY = re.compile(r"\.g(0|[1-9][0-9]{0,18})\.base\.tmp")


class FileKind(Enum):
    """What a name says a file is."""

    BASE = auto()
    SEGMENT = auto()
    UNBORN = auto()
    KEPT = auto()
    TEMPORARY = auto()


MEANS_NOTHING = frozenset({FileKind.UNBORN, FileKind.KEPT, FileKind.TEMPORARY})
"""What a log may lose at any time: start-up removes it."""


class FileName(NamedTuple):
    """A name taken apart; ``sequence`` is 0 unless it is or was a segment."""

    kind: FileKind
    generation: int
    sequence: int


def base_name(generation: int) -> str:
    """Name of a log's base file."""
    return f"g{generation}.base"


def segment_name(generation: int, sequence: int) -> str:
    """Name of a segment."""
    return f"g{generation}-{sequence:012d}.seg"


def unborn_name(generation: int, nonce: int) -> str:
    """Name of a segment that is being made; ``nonce`` is drawn for it alone."""
    return f"g{generation}-{nonce:016x}.new"


def kept_name(generation: int, sequence: int) -> str:
    """Name that the file of a collected segment gets when it is kept to be used again."""
    return f"g{generation}-{sequence:012d}.old"


def parse(name: str) -> FileName | None:
    """Take a name apart; ``None`` if it is none of ours."""
    if found := _SEGMENT.fullmatch(name):
        return FileName(FileKind.SEGMENT, int(found[1]), int(found[2]))
    if found := _BASE.fullmatch(name):
        return FileName(FileKind.BASE, int(found[1]), 0)
    if found := _UNBORN.fullmatch(name):
        return FileName(FileKind.UNBORN, int(found[1]), 0)
    if found := _KEPT.fullmatch(name):
        return FileName(FileKind.KEPT, int(found[1]), int(found[2]))
    if found := _TEMPORARY.fullmatch(name):
        return FileName(FileKind.TEMPORARY, int(found[1]), 0)
    return None


def sequences_of(files: Files, directory: str, generation: int) -> list[int]:
    """Numbers of the segments of one generation that are there, ascending."""
    names = (parse(name) for name in files.listdir(directory))
    return sorted(
        name.sequence
        for name in names
        if name is not None and name.kind is FileKind.SEGMENT and name.generation == generation
    )
