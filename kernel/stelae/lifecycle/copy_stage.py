"""The stage of a copy: the directory with what has arrived, until it is installed (``durability.md`` rule 21).

::

    copying/<tablet-id>/manifest        the snapshot that is being copied
    copying/<tablet-id>/rows/<file>     an item that is complete, durable and has had its digest
    copying/<tablet-id>/rows/.<file>    an item that has arrived in part
    copying/<tablet-id>/log/, export/   likewise

Ordering and durability
    1. The manifest is durable before anything else is in the stage. A stage whose manifest cannot be read is not
       intact, and is removed.
    2. An item gets its name when it has its digest and is durable. So a name says that the item need not be fetched
       again; a copy still verifies all items before it installs them.
    3. When a copy goes on with another snapshot, the items that are not in both with the same size and digest are
       durably removed before the manifest is replaced. So no item ever passes for another of its name.

A part of an item may be torn after a crash. Its checksum is compared with that of the source before it is used.

All items are read again before they are installed. An item whose digest this process has computed must still have the
CRC32C of those bytes, which finds damage at a tenth of the cost. Others must have their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import TypeVar

import crc32c
import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints, FileKind, MetadataMissing, load, save
from stelae.lifecycle.copy_cancelled import not_cancelled, unless_cancelled
from stelae.lifecycle.copy_items import ItemKind, file_of, kind_of
from stelae.lifecycle.directory_size import bytes_below
from stelae.lifecycle.side_work import DoneAtOnce, SideWork
from stelae.spi.copy_plan import CopySnapshot
from stelae.spi.errors import Corrupt, Full, StorageError
from stelae.spi.ids import TabletId
from stelae.spi.services import Buffer, File, Files
from stelae.spi.wal import SnapshotUnit

_Read = TypeVar("_Read")

READ_BYTES = 1 << 20
"""Bytes of an item that are read at a time."""


class StageManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of the file ``manifest``."""

    tablet_id: TabletId
    used_us: int  #: Wall-clock microseconds of the last copy that used the stage, for the age limit.
    snapshot: CopySnapshot


STAGE = FileKind("copy-stage", b"STcs", 1, msgspec.msgpack.Decoder(StageManifest))


def manifest_of(layout: DirectoryLayout, tablet: TabletId) -> str:
    """Return the path of the manifest of a tablet's stage."""
    return f"{layout.stage_of(tablet)}/manifest"


def read_manifest(files: Files, layout: DirectoryLayout, tablet: TabletId) -> StageManifest | None:
    """Return the manifest of a stage, or ``None`` if there is no intact stage of this tablet."""
    try:
        found = load(files, STAGE, manifest_of(layout, tablet))
    except (StorageError, MetadataMissing):
        return None
    return found if found.tablet_id == tablet == found.snapshot.tablet_id else None


def remove_stage(files: Files, layout: DirectoryLayout, tablet: TabletId) -> None:
    """Remove the stage of a tablet. Durable on return. Costs no sync if there is none."""
    if files.exists(layout.stage_of(tablet)):
        files.remove_tree(layout.stage_of(tablet))
        files.sync_directory(layout.copying)


class _Digest:
    """Digest, checksum and size of an item's bytes, starting at its first byte. ``work`` computes them.

    ``crc`` and ``is_that_of`` need all of the work to be done."""

    def __init__(self, work: SideWork) -> None:
        self._work = work
        self._digest = hashlib.sha256()
        self.crc = 0
        self.size_bytes = 0

    def add(self, data: Buffer) -> None:
        self.size_bytes += len(data)
        self._work.begin(lambda: self._update(data))

    def _update(self, data: Buffer) -> None:
        self._digest.update(data)
        self.crc = crc32c.crc32c(data, self.crc)

    def is_that_of(self, unit: SnapshotUnit) -> bool:
        return self.size_bytes == unit.size_bytes and self._digest.hexdigest() == unit.digest


class CopyStage:
    """The stage of one tablet. A ``CopySink``. It is used by one thread at a time, and all methods may block.

    Args:
        bytes_max: how large the stage may become.
        side_work: what is done beside the writes: digests, and syncs. ``settle`` waits for the syncs.
    """

    def __init__(
        self,
        files: Files,
        layout: DirectoryLayout,
        tablet: TabletId,
        bytes_max: int,
        crash: CrashPoints = NO_CRASH,
        side_work: Callable[[], SideWork] = DoneAtOnce,
    ) -> None:
        self._files = files
        self._layout = layout
        self._tablet = tablet
        self._bytes_max = bytes_max
        self._crash = crash
        self._hashing, self._syncs = side_work(), side_work()
        self._place = layout.stage_of(tablet)
        self._items: dict[str, SnapshotUnit] = {}
        self._open: dict[str, File] = {}
        self._digests: dict[str, _Digest] = {}  # Of items of which this object has written every byte.
        self._checksums: dict[SnapshotUnit, int] = {}  # Of items that had their digest.
        self._bytes = 0  # Of everything in the stage.

    # -- the snapshot --------------------------------------------------------------------------------

    def prepare(self, snapshot: CopySnapshot, now_us: int) -> None:
        """Prepare the stage for a snapshot, and keep what it has of it. Durable on return. May be repeated.

        The items were checked (``offer_check``). Raises ``Full`` if the snapshot is larger than the stage
        may be; nothing was changed."""
        size_bytes = sum(item.size_bytes for item in snapshot.items)
        if size_bytes > self._bytes_max:
            fact = f"the copy needs {size_bytes} bytes, and a stage may have {self._bytes_max}; raise [stage] bytes_max"
            raise Full(fact, path=self._place)
        self.close()
        old = read_manifest(self._files, self._layout, self._tablet)
        if old is None:
            remove_stage(self._files, self._layout, self._tablet)
        for kind in ItemKind:
            self._files.make_directory(f"{self._place}/{kind}")
        self._items = {item.name: item for item in snapshot.items}
        kept = set(self._items.values()) & set(old.snapshot.items) if old is not None else set()
        self._keep_only({item.name for item in kept})
        self._files.sync_directory(self._layout.copying)
        self._crash.hit("copy.after_stage_cleaned")
        manifest = StageManifest(tablet_id=self._tablet, used_us=now_us, snapshot=snapshot)
        save(self._files, STAGE, manifest_of(self._layout, self._tablet), manifest, self._crash)
        self._bytes = bytes_below(self._files, self._place)

    def _keep_only(self, names: set[str]) -> None:
        for kind in ItemKind:
            directory = f"{self._place}/{kind}"
            for file in self._files.listdir(directory):
                if f"{kind}/{file.removeprefix('.')}" not in names:
                    self._files.remove(f"{directory}/{file}")
            self._files.sync_directory(directory)

    def have(self) -> dict[str, str]:
        """Return the digests of the items that are durable, by name."""
        self.settle()
        return {name: item.digest for name, item in self._items.items() if self._files.exists(self._path(name))}

    # -- CopySink ------------------------------------------------------------------------------------

    def stored(self, item: str) -> int:
        """Return how many bytes of an item that is not durable are stored, from its beginning on without gaps."""
        file = self._part(item, create=False)
        return 0 if file is None else file.size()

    def checksum(self, item: str) -> int:
        """Return the CRC32C of the stored bytes of an item. Raises ``StorageError``; if they cannot be read, the item
        arrives again from its beginning when the copy goes on."""
        file = self._part(item, create=False)
        return 0 if file is None else self._read_part(item, lambda: _checksum_of(file))

    def write(self, item: str, offset: int, data: Buffer) -> None:
        """Store bytes of an item. ``offset`` equals ``stored(item)``.

        Raises ``Full`` if the stage or the disk has no space, and another ``StorageError`` if it cannot be written."""
        if self._bytes + len(data) > self._bytes_max:
            raise Full(f"the stage has its {self._bytes_max} bytes; raise [stage] bytes_max", path=self._place)
        file = self._part(item, create=True)
        assert file is not None
        running = self._digests.pop(item, None) if offset else _Digest(self._hashing)
        file.pwritev([data], offset)
        self._bytes += len(data)
        if running is not None and running.size_bytes == offset:
            running.add(data)
            self._digests[item] = running
        self._crash.hit("copy.after_chunk")

    def finish(self, item: str) -> None:
        """Verify the digest of an item and begin to make it durable.

        The bytes of an item that arrived from its beginning on were hashed when they were written; others are read.
        ``verify`` reads all of them.

        Raises ``Corrupt`` if the item does not have the digest of the snapshot; it is discarded. Raises as ``write``
        does otherwise."""
        file = self._part(item, create=True)
        assert file is not None
        self._hashing.wait()
        unit, found = self._items[item], self._digests.get(item)
        found = found or self._read_part(item, lambda: _digest_of(file))
        if not found.is_that_of(unit):
            self.discard(item)
            raise Corrupt("the item does not have the digest that its source announced", path=self._path(item))
        self._checksums[unit] = found.crc
        self._digests.pop(item, None)
        del self._open[item]
        try:
            self._syncs.begin(lambda: self._make_durable(item, file))
        except StorageError:  # Of an earlier item.
            file.close()
            raise

    def settle(self) -> None:
        """Wait until every item that was finished is durable. Raises ``StorageError`` if one cannot be made so."""
        self._syncs.wait()

    def _make_durable(self, item: str, file: File) -> None:
        """Sync an item and give it its name. Uses nothing that other methods change.

        If the sync fails, the bytes on the disk are not known (rule 7): the item arrives again from its beginning."""
        try:
            with closing(file):
                file.sync()
        except StorageError:
            with suppress(StorageError):
                self._files.remove(self._part_path(item))
            raise
        self._files.rename(self._part_path(item), self._path(item))
        self._files.sync_directory(f"{self._place}/{kind_of(item)}")
        self._crash.hit("copy.after_item")

    def discard(self, item: str) -> None:
        """Forget the stored bytes of an item. Raises ``StorageError``."""
        self.settle()
        self._forget(item)
        if self._files.exists(self._part_path(item)):
            self._files.remove(self._part_path(item))
        self._bytes = bytes_below(self._files, self._place)

    # -- what a copy installs ------------------------------------------------------------------------

    def verify(self, cancelled: Callable[[], bool] = not_cancelled) -> list[str]:
        """Read all items, and check that they have their digests or the checksums of bytes that had them.

        Durably remove those that are damaged or that the disk does not return, and return their names.

        ``cancelled`` is asked for every ``READ_BYTES``. Raises ``CopyCancelled`` once it returns True; nothing was
        removed then."""
        self.close()
        damaged = [name for name in self._items if not self._is_intact(name, cancelled)]
        for name in damaged:
            if self._files.exists(self._path(name)):
                self._files.remove(self._path(name))
                self._files.sync_directory(f"{self._place}/{kind_of(name)}")
        return damaged

    def read(self, item: str) -> bytes:
        """Return the bytes of an item that is durable. Pieces of a log and of an export are small."""
        return self._files.read_bytes(self._path(item))

    def directory_of(self, kind: ItemKind) -> str:
        """Return the directory with the items of a kind. It has no other files once all items are verified."""
        return f"{self._place}/{kind}"

    def close(self) -> None:
        """Close the files of items that have arrived in part, once all items that were finished are settled.

        Raises nothing: ``settle`` tells whether an item cannot be made durable. Such an item arrives again."""
        self._hashing.wait()
        with suppress(StorageError):
            self.settle()
        for item in list(self._open):
            self._forget(item)

    def _is_intact(self, item: str, cancelled: Callable[[], bool]) -> bool:
        """Return whether an item can be read and has its bytes. An item that cannot be read would end every copy."""
        try:
            return self._has_its_bytes(self._items[item], cancelled)
        except FileNotFoundError:
            return False
        except StorageError as error:
            if isinstance(error, Full):  # Of handles or memory. It says nothing about the item.
                raise
            return False

    def _has_its_bytes(self, unit: SnapshotUnit, cancelled: Callable[[], bool]) -> bool:
        with closing(self._files.open(self._path(unit.name))) as file:
            if file.size() != unit.size_bytes:
                return False
            crc = self._checksums.get(unit)
            if crc is None:
                return _digest_of(file, cancelled).is_that_of(unit)
            return _checksum_of(file, cancelled) == crc

    def _read_part(self, item: str, read: Callable[[], _Read]) -> _Read:
        """Read the stored bytes of an item. If the disk cannot read them, they are removed, and its error is raised.

        Unreadable bytes would make every later copy fail too."""
        try:
            return read()
        except Full:
            raise
        except StorageError:
            self._forget(item)
            with suppress(StorageError):
                self._files.remove(self._part_path(item))
            raise

    def _part(self, item: str, *, create: bool) -> File | None:
        """Return the open file of an item that has arrived in part."""
        found = self._open.get(item)
        if found is None:
            path = self._part_path(item)
            if self._files.exists(path):
                found = self._files.open(path, writable=True)
            elif create:
                found = self._files.create(path)
            else:
                return None
            self._open[item] = found
        return found

    def _forget(self, item: str) -> None:
        self._digests.pop(item, None)
        if (file := self._open.pop(item, None)) is not None:
            file.close()

    def _path(self, item: str) -> str:
        return f"{self._place}/{item}"

    def _part_path(self, item: str) -> str:
        return f"{self._place}/{kind_of(item)}/.{file_of(item)}"


def _digest_of(file: File, cancelled: Callable[[], bool] = not_cancelled) -> _Digest:
    digest = _Digest(DoneAtOnce())
    for data in unless_cancelled(_contents(file), cancelled):
        digest.add(data)
    return digest


def _checksum_of(file: File, cancelled: Callable[[], bool] = not_cancelled) -> int:
    crc = 0
    for data in unless_cancelled(_contents(file), cancelled):
        crc = crc32c.crc32c(data, crc)
    return crc


def _contents(file: File) -> Iterator[bytes]:
    size, at = file.size(), 0
    while at < size:
        data = file.pread(READ_BYTES, at)
        if not data:
            raise StorageError(f"the file ends before its length of {size} bytes", path=file.path, offset=at)
        yield data
        at += len(data)
