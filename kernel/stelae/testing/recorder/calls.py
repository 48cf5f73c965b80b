"""What a recorded process did to files, one value for each call that succeeded.

Paths are those of the system at that moment, absolute; a call on something that has no name any more is not
recorded, for no crash can bring it back."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class RecordedWrite(msgspec.Struct, frozen=True):
    """Bytes at an offset; with ``dsync`` durable on return, though nothing written before them is."""

    path: str
    offset: int
    data: bytes
    dsync: bool = False


class Resize(msgspec.Struct, frozen=True):
    """A file was cut or extended with zeros to ``size`` bytes."""

    path: str
    size: int


class RecordedSync(msgspec.Struct, frozen=True):
    """A file's contents, or a directory's names, are durable."""

    path: str


class Create(msgspec.Struct, frozen=True):
    """An empty file has a name."""

    path: str


class MakeDirectory(msgspec.Struct, frozen=True):
    """An empty directory has a name."""

    path: str


class Rename(msgspec.Struct, frozen=True):
    """A file or directory has another name, in place of whatever had it."""

    path: str
    target: str


class Remove(msgspec.Struct, frozen=True):
    """A file's name is gone."""

    path: str


class RemoveDirectory(msgspec.Struct, frozen=True):
    """An empty directory is gone."""

    path: str


class Mapped(msgspec.Struct, frozen=True):
    """A file was mapped so that it can be written without a call: what it holds is not known any more."""

    path: str


class Unknown(msgspec.Struct, frozen=True):
    """A change that cannot be replayed, such as a link."""

    path: str


class Mark(msgspec.Struct, frozen=True):
    """What the process said about itself between two calls."""

    text: str


Call: TypeAlias = (
    RecordedWrite
    | Resize
    | RecordedSync
    | Create
    | MakeDirectory
    | Rename
    | Remove
    | RemoveDirectory
    | Mapped
    | Unknown
    | Mark
)
