"""Quarantine: what deletions set aside, kept for a while for whoever wants it back.

One directory per deletion, ``quarantine/<tablet-id>.<n>``::

    about           when it was deleted, and why
    superblock      as it was
    consensus-meta  as it was when the tombstone was durable
    data/           of the store engine
    wals/           of the log engine

A directory counts once the superblock of its tablet names it (the tombstone); one that nobody names and that holds
neither data nor a log was begun by a deletion that a crash took back."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stelae.host.layout import Layout
from stelae.host.metadata import Kind, MetadataMissing, load, save
from stelae.spi.errors import BadIdentifier, StorageError
from stelae.spi.ids import TabletId, tablet_id
from stelae.spi.services import Files

CONTENTS = ("data", "wals")


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Why a directory is there. ``deleted_us``: wall-clock microseconds, for people and for the limit on age."""

    tablet_id: TabletId
    table_name: str
    deleted_us: int
    reason: str


ABOUT = Kind("quarantine", b"STqu", 1, About)


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """One directory of the quarantine."""

    name: str  #: ``<tablet-id>.<n>``.
    about: About | None  #: ``None``: it cannot be read.
    size_bytes: int  #: Of all its files.


def make_place(files: Files, layout: Layout, tablet: TabletId) -> str:
    """Make the next directory of a tablet, durably; return its path relative to the node's directory."""
    numbers = [0, *(number for found, number in _names(files, layout) if found == tablet)]
    place = f"{layout.quarantine}/{tablet}.{max(numbers) + 1}"
    files.make_directory(place)
    files.sync_directory(layout.quarantine)
    return place.removeprefix(f"{layout.root}/")


def save_about(files: Files, place: str, about: About) -> None:
    """Say why a directory is there; durable on return."""
    save(files, ABOUT, f"{place}/about", about)


def listed(files: Files, layout: Layout) -> list[Quarantined]:
    """Everything that is set aside, oldest deletion first; what cannot be read stands in front."""
    found = []
    for tablet, number in _names(files, layout):
        name = f"{tablet}.{number}"
        place = f"{layout.quarantine}/{name}"
        try:
            about = load(files, ABOUT, f"{place}/about")
        except (StorageError, MetadataMissing):
            about = None
        found.append(Quarantined(name=name, about=about, size_bytes=_size_of(files, place)))
    return sorted(found, key=lambda one: (one.about.deleted_us if one.about else 0, one.name))


def purge(files: Files, layout: Layout, names: list[str]) -> None:
    """Remove directories for good. A tombstone that names one keeps its last op id and can vote on."""
    for name in names:
        files.remove_tree(f"{layout.quarantine}/{name}")
    if names:
        files.sync_directory(layout.quarantine)


def too_much(found: list[Quarantined], *, bytes_max: int, deleted_before_us: int) -> list[str]:
    """Names of what is too old, and of the oldest of what is above ``bytes_max`` in all."""
    left = sum(one.size_bytes for one in found)
    names = []
    for one in found:
        old = one.about is not None and one.about.deleted_us < deleted_before_us
        if old or left > bytes_max:
            names.append(one.name)
            left -= one.size_bytes
    return names


def remove_unfinished(files: Files, layout: Layout, named: set[str | None]) -> None:
    """Remove what deletions began before they had a tombstone; ``named`` are the places in superblocks."""
    orphans = []
    for tablet, number in _names(files, layout):
        place = f"{layout.quarantine}/{tablet}.{number}"
        holds = any(files.exists(f"{place}/{part}") for part in CONTENTS)
        if not holds and place.removeprefix(f"{layout.root}/") not in named:
            orphans.append(f"{tablet}.{number}")
    purge(files, layout, orphans)


def _names(files: Files, layout: Layout) -> Iterator[tuple[TabletId, int]]:
    for name in files.listdir(layout.quarantine):
        tablet, _, number = name.rpartition(".")
        try:
            if number.isdecimal():
                yield tablet_id(tablet), int(number)
        except BadIdentifier:
            continue


def _size_of(files: Files, place: str) -> int:
    """Bytes of all files below a path; what is no directory is a file."""
    try:
        names = files.listdir(place)
    except NotADirectoryError:
        file = files.open(place)
        try:
            return file.size()
        finally:
            file.close()
    return sum(_size_of(files, f"{place}/{name}") for name in names)
