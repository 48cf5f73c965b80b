"""The environment of a store and its life: creation at the first flush, flushes, compaction, edits of the manifest.

After a failed sync it refuses every further write (durability rule 7)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import msgspec

from stelae.spi.errors import StorageError, SyncFailed
from stelae.spi.ids import ZERO, OpId
from stelae.spi.schema import Schema
from stelae.spi.store import Edit
from stelae_shared.lmdb_files.marker import ShutdownState
from stelae_store_lmdb.compaction import compact_list
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.manifest import LmdbManifest, decode_manifest, encode_manifest
from stelae_store_lmdb.memtable import LmdbMemtable
from stelae_store_lmdb.memtable_flush import Flush
from stelae_store_lmdb.opening import (
    StoreDirectory,
    create_environment,
    discard_environment,
    open_environment,
    read_header,
)


class StoreEnvironment:
    """The environment of one store. Only the applying thread uses it."""

    def __init__(self, directory: StoreDirectory, manifest: LmdbManifest, flushed: OpId) -> None:
        self._directory = directory
        self._committed = Edit(manifest=encode_manifest(manifest), flushed=flushed if manifest.flush else ZERO)
        self._flush = manifest.flush
        self._committed_flush = manifest.flush
        self._failed = ""
        self.env: Environment | None = None

    def open(self) -> int:
        """Open the environment that the manifest names, if it names one. Returns the floor in its header."""
        if not self._committed_flush:
            discard_environment(self._directory)
            return 0
        self.env = open_environment(self._directory, self._committed_flush)
        with self.env.read() as txn:
            return read_header(txn, self.env.path).floor

    def flush(self, memory: LmdbMemtable, floor: int) -> int:
        """Write a memtable to the environment. Returns the number of transactions. ``Full``: keep the memtable."""
        self.check()
        if self.env is None:
            self.env = create_environment(self._directory)
        try:
            flush = Flush(self.env, self._directory.config, self._committed_flush)
            transactions = flush.write(memory, floor)
        except StorageError as error:
            self._note_failed_sync(error)
            raise
        self._flush = flush.number
        return transactions

    def compact(self, limit: int, floor: int, lists_max: int) -> Edit | None:
        """Remove versions that no view at or above ``limit`` can see, up to ``lists_max`` lists of keys.

        Returns an edit that records the floor if something was removed. Then there may be more."""
        done = 0
        try:
            while self.env is not None and not self._failed and done < lists_max:
                flushed = self._committed.flushed
                if not compact_list(self.env, self._committed_flush, flushed.index, limit, floor):
                    break
                done += 1
        except StorageError as error:
            self._note_failed_sync(error)
            raise
        if not done:
            return None
        manifest = msgspec.structs.replace(decode_manifest(self._committed.manifest, ""), floor=floor)
        return Edit(manifest=encode_manifest(manifest), flushed=self._committed.flushed)

    def propose(self, applied: OpId, schema: Schema, schemas: Mapping[int, Schema], stamp: int, floor: int) -> Edit:
        """Return the edit that names the last flush."""
        manifest = LmdbManifest(
            flush=self._flush,
            floor=floor,
            stamp=stamp,
            schema_version=schema.version,
            schemas=tuple(schemas[version] for version in sorted(schemas)),
        )
        return Edit(manifest=encode_manifest(manifest), flushed=applied)

    @property
    def flushed(self) -> OpId:
        """The op id up to which the last committed edit covers the log."""
        return self._committed.flushed

    def on_commit(self, edit: Edit) -> None:
        """Note that an edit is durable: the flushes that it covers will not be removed any more."""
        self._committed = edit
        self._committed_flush = decode_manifest(edit.manifest, self._directory.path).flush

    def close(self) -> None:
        """Close the environment, and record in the marker that it was closed cleanly."""
        env, self.env = self.env, None
        failed, self._failed = self._failed, self._failed or "the store is closed"
        if env is None:
            return
        env.close()
        if not failed:
            self._directory.marker.write(ShutdownState.CLEAN)

    def check(self) -> None:
        """Raise ``StorageError`` if the environment has failed or is closed."""
        if self._failed:
            raise StorageError(self._failed, path=self._directory.data_path)

    def _note_failed_sync(self, error: StorageError) -> None:
        """Stop all writes after a failed sync, now and after a restart (durability rule 7)."""
        if isinstance(error, SyncFailed):
            self._failed = f"a sync of the environment failed: {error.fact}"
            with suppress(StorageError):
                self._directory.marker.write(ShutdownState.DISTRUSTED)
