"""The calls of a recorded process, one value for each call that succeeded.

Paths are absolute, as they were at the time of the call. A call on a file or directory without a name is not recorded,
because no crash can bring it back."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class RecordedWrite(msgspec.Struct, frozen=True):
    """Bytes were written at an offset. With ``dsync`` they are durable on return; earlier writes are not."""

    path: str
    offset: int
    data: bytes
    dsync: bool = False


class Resize(msgspec.Struct, frozen=True):
    """A file was cut or extended with zeros to ``size`` bytes."""

    path: str
    size: int


class RecordedSync(msgspec.Struct, frozen=True):
    """A file's contents, or a directory's names, were made durable."""

    path: str


class Create(msgspec.Struct, frozen=True):
    """An empty file was created."""

    path: str


class MakeDirectory(msgspec.Struct, frozen=True):
    """An empty directory was created."""

    path: str


class Rename(msgspec.Struct, frozen=True):
    """A file or directory was renamed, in place of whatever had the new name."""

    path: str
    target: str


class Remove(msgspec.Struct, frozen=True):
    """A file's name was removed."""

    path: str


class RemoveDirectory(msgspec.Struct, frozen=True):
    """An empty directory was removed."""

    path: str


class Mapped(msgspec.Struct, frozen=True):
    """A file was mapped for shared writing. Its contents are unknown from then on."""

    path: str


class Unknown(msgspec.Struct, frozen=True):
    """A change was made that cannot be replayed, such as a link."""

    path: str


class Mark(msgspec.Struct, frozen=True):
    """The process reported its progress between two calls."""

    text: str


SystemCall: TypeAlias = (
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
