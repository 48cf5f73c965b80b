"""Quarantine: what deletions set aside, kept for a while for whoever wants it back.

One directory per deletion, ``quarantine/<tablet-id>.<n>``::

    about           when it was deleted, and why
    superblock      as it was
    consensus-meta  as it was when the tombstone was durable
    data/           of the store engine
    wals/           of the log engine

A directory counts once the superblock of its tablet names it (the tombstone); one that nobody names and that holds
neither data nor a log was begun by a deletion that a crash took back. Beside them stand ``wals-<engine>.<n>``, logs
that a conversion has set aside: they have no date, so they go for their size alone, and before what has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import FileKind, MetadataMissing, load, save
from stelae.lifecycle.directory_size import bytes_below
from stelae.spi.errors import BadIdentifier, StorageError
from stelae.spi.ids import TabletId, tablet_id
from stelae.spi.services import Files
from stelae.spi.settings import setting

CONTENTS = ("data", "wals")
PARTS = {"about", "superblock", "consensus-meta", *CONTENTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineSettings:
    """Section ``[quarantine]``: how much a node keeps of what it has deleted, and for how long."""

    bytes_max: int = setting(
        64 << 30, unit="bytes", low=0, high=1 << 50, reason="above it the oldest goes; 0 keeps nothing"
    )
    age_s_max: int = setting(
        604_800, unit="s", low=0, high=315_360_000, reason="a week: long enough to notice a table dropped by mistake"
    )
    free_bytes_min: int = setting(
        1 << 30, unit="bytes", low=0, high=1 << 50, reason="with less space on the disk the oldest goes first"
    )
    interval_ms: int = setting(
        60_000, unit="ms", low=50, high=86_400_000, reason="limits of days need no haste, a disk that fills does"
    )


class DeletionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Why a directory is there. ``deleted_us``: wall-clock microseconds, for people and for the limit on age.

    ``wal_engine`` set the log aside, and can read it; empty: not said, by an older release."""

    tablet_id: TabletId
    table_name: str
    deleted_us: int
    reason: str
    wal_engine: str = ""


ABOUT = FileKind("quarantine", b"STqu", 1, msgspec.msgpack.Decoder(DeletionRecord))


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """One directory of the quarantine."""

    name: str  #: ``<tablet-id>.<n>``.
    about: DeletionRecord | None  #: ``None``: it cannot be read, or is of no deletion.
    size_bytes: int  #: Of all its files.
    of_deletion: bool = True  #: Else a conversion of the log has set it aside.


def make_place(files: Files, layout: DirectoryLayout, tablet: TabletId) -> str:
    """Make the next directory of a tablet, durably; return its path relative to the node's directory."""
    numbers = [0, *(number for found, number in _names(files, layout) if found == tablet)]
    place = f"{layout.quarantine}/{tablet}.{max(numbers) + 1}"
    files.make_directory(place)
    files.sync_directory(layout.quarantine)
    return place.removeprefix(f"{layout.root}/")


def save_about(files: Files, place: str, about: DeletionRecord) -> None:
    """Say why a directory is there; durable on return."""
    save(files, ABOUT, f"{place}/about", about)


def listed(files: Files, layout: DirectoryLayout) -> list[Quarantined]:
    """Everything that is set aside, oldest deletion first; what cannot be read stands in front."""
    found = []
    for tablet, number in _names(files, layout):
        name = f"{tablet}.{number}"
        place = place_named(layout, name)
        try:
            about = load(files, ABOUT, f"{place}/about")
        except (StorageError, MetadataMissing):
            about = None
        size_bytes, of_deletion = bytes_below(files, place), about is not None or _of_deletion(files, place)
        found.append(Quarantined(name=name, about=about, size_bytes=size_bytes, of_deletion=of_deletion))
    return sorted(found, key=lambda one: (one.about.deleted_us if one.about else 0, one.name))


def purge(files: Files, layout: DirectoryLayout, names: list[str]) -> None:
    """Remove directories for good. A tombstone that names one keeps its last op id and can vote on."""
    for name in names:
        files.remove_tree(place_named(layout, name))
    if names:
        files.sync_directory(layout.quarantine)


def place_named(layout: DirectoryLayout, name: str) -> str:
    """Path of one directory of the quarantine."""
    return f"{layout.quarantine}/{name}"


def tablet_of(name: str) -> TabletId:
    """The tablet of a directory; ``BadIdentifier``: it is no name of one."""
    tablet, _, number = name.rpartition(".")
    if not number.isdecimal():
        raise BadIdentifier("directory of the quarantine", name, "<tablet-id>.<number>")
    return tablet_id(tablet)


def allowed_bytes(found: Sequence[Quarantined], settings: QuarantineSettings, free_bytes: int) -> int:
    """How much may stay: what the settings allow, and less where the disk has less space left than it should have."""
    present = sum(one.size_bytes for one in found)
    return min(settings.bytes_max, max(0, present - max(0, settings.free_bytes_min - free_bytes)))


def too_much(found: Sequence[Quarantined], *, bytes_max: int, deleted_before_us: int) -> list[str]:
    """Names of what is too old, and of the oldest of what is above ``bytes_max`` in all."""
    left = sum(one.size_bytes for one in found)
    names = []
    for one in found:
        old = one.about is not None and one.about.deleted_us < deleted_before_us
        if old or left > bytes_max:
            names.append(one.name)
            left -= one.size_bytes
    return names


def remove_unfinished(files: Files, layout: DirectoryLayout, named: set[str | None]) -> None:
    """Remove what deletions began before they had a tombstone; ``named`` are the places in superblocks."""
    orphans = []
    for tablet, number in _names(files, layout):
        place = place_named(layout, f"{tablet}.{number}")
        holds = any(files.exists(f"{place}/{part}") for part in CONTENTS)
        if not holds and _of_deletion(files, place) and place.removeprefix(f"{layout.root}/") not in named:
            orphans.append(f"{tablet}.{number}")
    purge(files, layout, orphans)


def _of_deletion(files: Files, place: str) -> bool:
    """Whether a directory holds nothing that a deletion would not have put there, or begun to."""
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
