"""A store with a durable flush, for tests: the memory store, written out whole at each flush.

It shows what the kernel owes to engines that flush (order of superblock and files, results of the
same op id, collection of the log) before there is one that users would want."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec
from crc32c import crc32c

from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.services import EngineServices, Files
from stelae.spi.store import Edit, VersionedRows
from stelae_store_memory import MemoryStore


class DurableStore(MemoryStore):
    """Every flush writes one file with the history floor and every version of every row; the manifest is its name."""

    name: ClassVar[str] = "durable"
    capabilities: ClassVar[frozenset[str]] = MemoryStore.capabilities | {"durable_flush"}

    @classmethod
    def open(
        cls,
        directory: str,
        manifest: bytes,
        flushed: OpId,
        schemas: Mapping[int, Schema],
        config: Any,
        services: EngineServices,
    ) -> Self:
        store = cls(schemas)
        store._files, store._directory = services.files, directory
        store._live, store._flushed = manifest.decode(), flushed
        if manifest:
            data = _checked(services.files, f"{directory}/{store._live}")
            floor, pieces = msgspec.msgpack.decode(data, type=tuple[int, list[tuple[int, bool, list[int], bytes]]])
            store.set_history_floor(floor)
            store.import_((_piece(schemas, *piece) for piece in pieces), flushed)
        store._remove_orphans()
        return store

    def flush(self) -> Edit | None:
        if self.applied == self._flushed:
            return None
        floor = self._floor
        pieces = [(p.schema_version, p.deleted, p.timestamps, p.rows.to_ipc()) for p in self.export()]
        name = f"rows-{self.applied.index}"
        self._make_directory()
        data = msgspec.msgpack.encode((floor, pieces))
        self._files.replace(f"{self._directory}/{name}", crc32c(data).to_bytes(4, "little") + data)
        obsolete = (self._live,) if self._live else ()
        return Edit(manifest=name.encode(), flushed=self.applied, obsolete=obsolete)

    def commit(self, edit: Edit) -> None:
        self._live, self._flushed = edit.manifest.decode(), edit.flushed
        for name in edit.obsolete:
            self._files.remove(f"{self._directory}/{name}")

    def memory_bytes(self) -> int:
        return 0 if self.applied == self._flushed else max(1, super().memory_bytes())

    def _make_directory(self) -> None:
        self._files.make_directory(self._directory)
        above = self._directory
        while above:
            above = above.rpartition("/")[0]
            self._files.sync_directory(above or "/")

    def _remove_orphans(self) -> None:
        if self._files.exists(self._directory):
            for name in self._files.listdir(self._directory):
                if name != self._live:
                    self._files.remove(f"{self._directory}/{name}")


def _checked(files: Files, path: str) -> bytes:
    """Return the contents of a file after its checksum; ``Corrupt``: it is not what was written."""
    try:
        data = files.read_bytes(path)
    except FileNotFoundError as error:
        raise Corrupt("the file is missing", path=path) from error
    if len(data) < 5 or int.from_bytes(data[:4], "little") != crc32c(data[4:]):
        raise Corrupt("the file fails its checksum", path=path, offset=0)
    return data[4:]


def _piece(
    schemas: Mapping[int, Schema], version: int, deleted: bool, timestamps: list[int], body: bytes
) -> VersionedRows:
    schema = schemas[version]
    layout = schema.key_layout if deleted else schema.layout
    return VersionedRows(version, deleted, tuple(timestamps), RowBatch.from_ipc(layout, body))
