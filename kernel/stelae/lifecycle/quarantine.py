"""The quarantine: the data of deleted replicas, kept for a while so that it can be restored.

Each deletion has one directory, ``quarantine/<tablet-id>.<n>``::

    about           when the replica was deleted, and why
    superblock      as it was before the deletion
    consensus-meta  as it was when the tombstone became durable
    data/           of the store engine
    wals/           of the log engine

A directory belongs to a deletion if the superblock of its tablet (the tombstone) names it. A directory that no
superblock names, and that has neither data nor a log, was left by a deletion that a crash interrupted before its commit
point. The quarantine also has directories ``wals-<engine>.<n>`` with logs that a conversion replaced. They have no
date, so only their size limits them, and they are removed before the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import FileKind, MetadataMissing, load, save
from stelae.host.superblock import SuperblockFile
from stelae.lifecycle.directory_size import bytes_below
from stelae.spi.errors import BadIdentifier, StorageError
from stelae.spi.ids import TabletId, tablet_id
from stelae.spi.services import Files
from stelae.spi.settings import setting

CONTENTS = ("data", "wals")
PARTS = {"about", "superblock", "consensus-meta", *CONTENTS}
CONVERTED = "wals-"
"""The names of the logs that a conversion replaced begin so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineSettings:
    """Section ``[quarantine]``: how much data of deleted replicas a node keeps, and for how long."""

    bytes_max: int = setting(
        64 << 30, unit="bytes", low=0, high=1 << 50, reason="above it the oldest is removed; 0 keeps nothing"
    )
    age_s_max: int = setting(
        604_800,
        unit="s",
        low=0,
        high=315_360_000,
        reason="one week is enough to notice a table that was dropped by mistake",
    )
    free_bytes_min: int = setting(
        1 << 30, unit="bytes", low=0, high=1 << 50, reason="with less free space on the disk the oldest is removed"
    )
    interval_ms: int = setting(
        60_000, unit="ms", low=50, high=86_400_000, reason="the age limit needs no hurry, but a disk that fills does"
    )


class DeletionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the file ``about``: when and why a replica was deleted."""

    tablet_id: TabletId
    table_name: str
    deleted_us: int  #: Wall-clock microseconds, for people and for the age limit.
    reason: str
    wal_engine: str = ""  #: The engine that can read ``wals/``; empty if it is not known.


ABOUT = FileKind("quarantine", b"STqu", 1, msgspec.msgpack.Decoder(DeletionRecord))


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """One directory of the quarantine."""

    name: str  #: ``<tablet-id>.<n>``.
    about: DeletionRecord | None  #: ``None`` if it cannot be read, or the directory is not of a deletion.
    size_bytes: int  #: The size of all its files.
    of_deletion: bool = True  #: False for a log that a conversion replaced.


def make_directory(files: Files, layout: DirectoryLayout, tablet: TabletId) -> str:
    """Create the next directory of a tablet, durably. Return its path, relative to the node's directory."""
    numbers = [0, *(number for found, number in _names(files, layout) if found == tablet)]
    place = f"{layout.quarantine}/{tablet}.{max(numbers) + 1}"
    files.make_directory(place)
    files.sync_directory(layout.quarantine)
    return place.removeprefix(f"{layout.root}/")


def save_record(files: Files, place: str, about: DeletionRecord) -> None:
    """Write the file ``about`` of a directory. Durable on return."""
    save(files, ABOUT, f"{place}/about", about)


def list_quarantine(files: Files, layout: DirectoryLayout) -> list[Quarantined]:
    """Return all directories, the oldest deletion first. Directories without a readable date come before them."""
    found = []
    for tablet, number in _names(files, layout):
        name = f"{tablet}.{number}"
        place = directory_of(layout, name)
        try:
            about = load(files, ABOUT, f"{place}/about")
        except (StorageError, MetadataMissing):
            about = None
        size_bytes, of_deletion = bytes_below(files, place), about is not None or _of_deletion(files, place)
        found.append(Quarantined(name=name, about=about, size_bytes=size_bytes, of_deletion=of_deletion))
    return sorted(found, key=lambda one: (one.about.deleted_us if one.about else 0, one.name))


def purge(files: Files, layout: DirectoryLayout, names: list[str]) -> None:
    """Remove directories permanently. A tombstone that names one keeps its last op id, so it can still vote.

    The superblock of a restored replica is durable before the data in quarantine go, also if the command that restored
    it was killed."""
    if not names:
        return
    files.sync_directory(layout.superblocks)
    for name in names:
        files.remove_tree(directory_of(layout, name))
    files.sync_directory(layout.quarantine)


def is_superseded(files: Files, layout: DirectoryLayout, one: Quarantined) -> bool:
    """Return whether a directory is the last data of no replica: a copy or a new replica has taken its place. Blocks.

    The superblock of its tablet names another directory, or none. A log that a conversion replaced is superseded, too.
    If the superblock is gone or cannot be read, that is not known."""
    if not one.of_deletion:
        return one.name.startswith(CONVERTED)
    try:
        block = SuperblockFile(files, layout, tablet_of(one.name)).load()
    except (StorageError, MetadataMissing):
        return False
    return block.quarantine != directory_of(layout, one.name).removeprefix(f"{layout.root}/")


def directory_of(layout: DirectoryLayout, name: str) -> str:
    """Return the path of a directory of the quarantine."""
    return f"{layout.quarantine}/{name}"


def tablet_of(name: str) -> TabletId:
    """Return the tablet of a directory. Raises ``BadIdentifier`` if ``name`` is not the name of such a directory."""
    tablet, _, number = name.rpartition(".")
    if not number.isdecimal():
        raise BadIdentifier("directory of the quarantine", name, "<tablet-id>.<number>")
    return tablet_id(tablet)


def allowed_bytes(found: Sequence[Quarantined], settings: QuarantineSettings, free_bytes: int) -> int:
    """Return how many bytes may stay: ``bytes_max``, or less if the disk has too little free space."""
    present = sum(one.size_bytes for one in found)
    return min(settings.bytes_max, max(0, present - max(0, settings.free_bytes_min - free_bytes)))


def names_to_purge(found: Sequence[Quarantined], *, bytes_max: int, deleted_before_us: int) -> list[str]:
    """Return the names to remove: those that are too old, and the oldest ones if the total is above ``bytes_max``."""
    left = sum(one.size_bytes for one in found)
    names = []
    for one in found:
        old = one.about is not None and one.about.deleted_us < deleted_before_us
        if old or left > bytes_max:
            names.append(one.name)
            left -= one.size_bytes
    return names


def remove_unfinished(files: Files, layout: DirectoryLayout, named: set[str | None]) -> None:
    """Remove the directories of deletions that were interrupted before they had a tombstone.

    ``named`` are the directories that superblocks name."""
    orphans = []
    for tablet, number in _names(files, layout):
        place = directory_of(layout, f"{tablet}.{number}")
        holds = any(files.exists(f"{place}/{part}") for part in CONTENTS)
        if not holds and _of_deletion(files, place) and place.removeprefix(f"{layout.root}/") not in named:
            orphans.append(f"{tablet}.{number}")
    purge(files, layout, orphans)


def _of_deletion(files: Files, place: str) -> bool:
    """Return whether a directory has only files that a deletion writes, complete or not."""
    try:
        names = files.listdir(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return {name.removeprefix(".").removesuffix(".tmp") for name in names} <= PARTS


def _names(files: Files, layout: DirectoryLayout) -> Iterator[tuple[TabletId, int]]:
    for name in files.listdir(layout.quarantine):
        tablet, _, number = name.rpartition(".")
        try:
            if number.isdecimal():
                yield tablet_id(tablet), int(number)
        except BadIdentifier:
            continue
