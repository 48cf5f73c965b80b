"""What of a store is on disk: its environment, made when something is flushed first, the edits that name flushes, and
the end of all writing once a sync has failed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from stelae.spi.errors import StorageError, SyncFailed
from stelae.spi.ids import ZERO, OpId
from stelae.spi.schema import Schema
from stelae.spi.store import Edit
from stelae_shared.lmdb_files.marker import ShutdownState
from stelae_store_lmdb.compacting import compact_piece
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.flushing import Flush
from stelae_store_lmdb.manifest import Manifest, decode_manifest, encode_manifest
from stelae_store_lmdb.memory import MemoryPart
from stelae_store_lmdb.opening import Place, created, discard, opened, read_header


class Upkeep:
    """Used by the applying thread alone."""

    def __init__(self, place: Place, manifest: Manifest, flushed: OpId) -> None:
        self._place = place
        self._committed = Edit(manifest=encode_manifest(manifest), flushed=flushed if manifest.flush else ZERO)
        self._flush = manifest.flush
        self._committed_flush = manifest.flush
        self._failed = ""
        self.env: Environment | None = None

    def open(self) -> int:
        """Open the environment that the manifest names, if it names one; return the floor that it knows."""
        if not self._committed_flush:
            discard(self._place)
            return 0
        self.env = opened(self._place, self._committed_flush)
        with self.env.read() as txn:
            return read_header(txn, self.env.path).floor

    def flush(self, memory: MemoryPart, floor: int) -> int:
        """Write out a part of memory; return in how many pieces. ``Full``: nothing of it may be forgotten."""
        self.check()
        if self.env is None:
            self.env = created(self._place)
        try:
            flush = Flush(self.env, self._place.config, self._committed_flush)
            pieces = flush.write(memory, floor)
        except StorageError as error:
            self._judge(error)
            raise
        self._flush = flush.number
        return pieces

    def compact(self, limit: int, floor: int, pieces_max: int) -> Edit | None:
        """Let go of what no view at or above ``limit`` can see, a bounded piece at a time.

        Return an edit that only says so if there was something: there may be more."""
        done = 0
        try:
            while self.env is not None and not self._failed and done < pieces_max:
                flushed = self._committed.flushed
                if not compact_piece(self.env, self._committed_flush, flushed.index, limit, floor):
                    break
                done += 1
        except StorageError as error:
            self._judge(error)
            raise
        if not done:
            return None
        manifest = msgspec.structs.replace(decode_manifest(self._committed.manifest, ""), floor=floor)
        return Edit(manifest=encode_manifest(manifest), flushed=self._committed.flushed)

    def propose(self, applied: OpId, schema: Schema, schemas: Mapping[int, Schema], stamp: int, floor: int) -> Edit:
        """Return the edit that stands for the last flush."""
        manifest = Manifest(
            flush=self._flush,
            floor=floor,
            stamp=stamp,
            schema_version=schema.version,
            schemas=tuple(schemas[version] for version in sorted(schemas)),
        )
        return Edit(manifest=encode_manifest(manifest), flushed=applied)

    @property
    def flushed(self) -> OpId:
        """What the last committed edit covers."""
        return self._committed.flushed

    def committed(self, edit: Edit) -> None:
        """An edit is durable: what it covers will not be taken back any more."""
        self._committed = edit
        self._committed_flush = decode_manifest(edit.manifest, self._place.directory).flush

    def close(self) -> None:
        """Close the environment, and record that it was closed."""
        env, self.env = self.env, None
        failed, self._failed = self._failed, self._failed or "the store is closed"
        if env is None:
            return
        env.close()
        if not failed:
            self._place.marker.write(ShutdownState.CLEAN)

    def check(self) -> None:
        """``StorageError``: it has failed, or is closed: what it holds is not to be changed."""
        if self._failed:
            raise StorageError(self._failed, path=self._place.data_path)

    def _judge(self, error: StorageError) -> None:
        """Durability rule 7: after a failed sync nothing is written to the file any more, now or after a restart."""
        if isinstance(error, SyncFailed):
            self._failed = f"a sync of the environment failed: {error.fact}"
            with suppress(StorageError):
                self._place.marker.write(ShutdownState.DISTRUSTED)
