"""Takes the snapshot of a live replica for a copy, without stopping the replica.

1. On the loop: an anchor keeps the log from now on.
2. Between two groups of applied entries: the rows, and the facts of the same op id, the *base*. Rows are the files of
   the last flush if the target has the same store engine, else a pinned export. A target without a durable store gets
   no rows, and the log from its beginning.
3. On the loop: the committed config, which is at least as new as the rows. When the log is durable up to the base and
   to that config: an immutable view of the log after the base.
4. On this thread: the log, and an export, are written to a spool of this snapshot. Store files are opened. The store
   knows their digests.
5. On the loop: the anchor moves to the end of the copied log. What follows is the leader's to send, and is kept until
   the session ends, whatever the cap on lagging peers (``durability.md`` rule 25).

From then on nothing of the snapshot depends on the replica: it can be written, collected, replaced and deleted. If a
step fails, everything that was pinned is released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.host.superblock import Superblock
from stelae.lifecycle.copy_facts import CopyFacts, facts_of_export, facts_of_files
from stelae.lifecycle.copy_items import rows_item
from stelae.lifecycle.copy_log import log_pieces
from stelae.lifecycle.copy_rows import export_pieces
from stelae.lifecycle.copy_spool import CopySpool
from stelae.protocol.copy_messages import BeginCopy
from stelae.server.tserver.log_view import view_of
from stelae.server.tserver.loop_calls import ThreadCalls
from stelae.server.tserver.tablet_service import replica_of
from stelae.spi.copy_plan import CopySnapshot
from stelae.spi.errors import Unavailable, Unsupported
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry
from stelae.spi.members import TabletConfig
from stelae.spi.services import File
from stelae.spi.store import StoreSnapshot, VersionedRows
from stelae.spi.wal import SnapshotUnit

ATTEMPTS_MAX = 250
PAUSE_US = 20_000
"""A step that must wait for a flush or for the log is tried again after this pause."""

_DONE_WORKING = (ReplicaState.FAILED, ReplicaState.STOPPING)


class _Rows(NamedTuple):
    """The rows of a snapshot, pinned."""

    facts: CopyFacts
    files: StoreSnapshot | None = None
    export: Iterator[VersionedRows] = iter(())


class ServedSnapshot:
    """The contents of a snapshot: its spool, and open files of the store. A ``CopyContent``."""

    def __init__(self, pins: ExitStack, retire: Callable[[Callable[[], Any]], None]) -> None:
        self._pins = pins
        self._retire = retire
        self._lock = Lock()  # Files are read by one thread at a time.
        self._described: CopySnapshot | None = None
        self._spool: CopySpool | None = None
        self._files: dict[str, File] = {}

    def describe(self, snapshot: CopySnapshot, spool: CopySpool, files: dict[str, File]) -> None:
        """Set what the snapshot consists of."""
        self._described, self._spool, self._files = snapshot, spool, files

    @property
    def snapshot(self) -> CopySnapshot:
        assert self._described is not None, "the snapshot was not taken yet"
        return self._described

    def read(self, item: str, offset: int, size_bytes: int) -> bytes:
        with self._lock:
            if item in self._files:
                return self._files[item].pread(size_bytes, offset)
            assert self._spool is not None, "the snapshot was not taken yet"
            return self._spool.read(item, offset, size_bytes)

    def release(self) -> None:
        self._retire(self._pins.close)


class SnapshotTaker:
    """Takes snapshots, on worker threads.

    Args:
        node: the node with the replicas.
        calls: the way to its event loop.
        directory: of the spools of this process."""

    def __init__(self, node: Node, calls: ThreadCalls, directory: str) -> None:
        self._node = node
        self._calls = calls
        self._directory = directory

    def take(self, asked: BeginCopy, name: str) -> ServedSnapshot:
        """Take a snapshot. ``name`` is unique in this process. Blocks.

        Raises ``NoSuchTablet`` or ``Unavailable`` if there is no replica that works, ``Unsupported`` if it has not what
        the target needs, and ``StorageError`` if it cannot be read or there is no space for it."""
        pins = ExitStack()
        content = ServedSnapshot(pins, self._retire)
        try:
            self._take(asked, name, pins, content)
        except BaseException:
            pins.close()
            raise
        return content

    def _take(self, asked: BeginCopy, name: str, pins: ExitStack, content: ServedSnapshot) -> None:
        replica = self._calls.call(
            lambda done: done(self._pin(asked, name)), lambda late: late.flusher.retention.release(name)
        )
        pins.callback(self._calls.post, partial(replica.flusher.retention.release, name))
        rows = self._rows(asked, replica, pins)
        base = rows.facts.flushed
        # Read after the rows: a config up to ``base`` is not in the copied log, so the target would never learn it.
        config: TabletConfig = self._calls.call(lambda done: done(replica.status.committed_config))
        self._until(partial(self._is_durable, replica, max(base.index, config.op_id.index)))
        view = view_of(self._node.engines.wal, replica.log, base.index + 1)
        pins.callback(view.release)
        spool = CopySpool(self._node.files, f"{self._directory}/{name}")
        pins.callback(spool.close)
        files, items = self._store_files(asked, rows, pins)
        items += spool.add(export_pieces(rows.export))
        tail = _Tail(base)
        items += spool.add(log_pieces(tail.through(view.entries())))
        view.release()
        term = self._calls.call(lambda done: done(self._move_anchor(replica, name, tail.last)))
        snapshot = CopySnapshot(
            tablet_id=asked.tablet_id,
            log=replica.log,
            base=base,
            last=tail.last,
            term=max(term, tail.last.term),
            committed_config=config,
            facts=rows.facts.to_bytes(),
            items=tuple(items),
        )
        content.describe(snapshot, spool, files)

    # -- on the loop -----------------------------------------------------------------------------

    def _pin(self, asked: BeginCopy, name: str) -> Replica:
        replica = replica_of(self._node, asked.tablet_id)
        _check_working(replica)
        if replica.flusher.superblock.log_only:
            raise Unsupported(f"the replica of tablet {asked.tablet_id} on this node has no rows; ask another source")
        replica.flusher.retention.anchor(name, replica.flusher.log_base.index + 1)
        return replica

    def _is_durable(self, replica: Replica, index: int) -> bool:
        _check_working(replica)
        return self._node.writer.durable(replica.log).index >= index

    def _move_anchor(self, replica: Replica, name: str, last: OpId) -> int:
        _check_working(replica)
        replica.flusher.retention.anchor(name, last.index + 1)
        return replica.status.term

    # -- on the worker thread --------------------------------------------------------------------

    def _rows(self, asked: BeginCopy, replica: Replica, pins: ExitStack) -> _Rows:
        store, flusher = replica.applier.store, replica.flusher
        if not asked.durable_store and not asked.as_export:
            return self._whole_log(replica)
        own = (flusher.superblock.store_engine, store.files_format)
        if asked.as_export or (asked.store_engine, asked.store_format) != own or "files" not in store.capabilities:
            return self._exported(replica)
        for _ in range(ATTEMPTS_MAX):
            files: StoreSnapshot = self._between_groups(replica, store.snapshot, StoreSnapshot.release)
            block: Superblock = self._calls.call(lambda done: done(flusher.superblock))
            # They differ while an edit is durable and not yet committed.
            if (block.manifest, block.flushed) == (files.edit.manifest, files.edit.flushed):
                pins.callback(files.release)
                return _Rows(facts_of_files(block, store.files_format), files=files)
            files.release()
            self._pause()
        raise Unavailable(f"the store of tablet {asked.tablet_id} is being compacted all the time; ask again")

    def _whole_log(self, replica: Replica) -> _Rows:
        def facts(done: Callable[[Any], None]) -> None:
            block = replica.flusher.superblock
            if replica.flusher.log_base != ZERO:
                base = replica.flusher.log_base
                done(Unsupported(f"the target's store keeps no rows, and the log up to {base} was collected"))
                return
            first = msgspec.structs.replace(
                block, flushed=ZERO, timestamp=0, results=b"", manifest=b"", schemas=block.schemas[:1]
            )
            done(facts_of_export(block, first, 0))

        return _Rows(self._calls.call(facts))

    def _exported(self, replica: Replica) -> _Rows:
        applier, block = replica.applier, replica.flusher.superblock

        def pinned() -> _Rows:
            as_of = msgspec.structs.replace(
                block,
                flushed=applier.applied,
                timestamp=applier.timestamp,
                results=applier.results.dump(),
                schemas=applier.schemas,
            )
            floor, batches = applier.store.history_floor, applier.store.export()
            # The view is pinned when the first batch is asked for.
            first = next(batches, None)
            exported = chain(() if first is None else (first,), batches)
            return _Rows(facts_of_export(block, as_of, floor), export=exported)

        found: _Rows = self._between_groups(replica, pinned)
        return found

    def _between_groups(
        self, replica: Replica, work: Callable[[], Any], discard: Callable[[Any], None] = lambda result: None
    ) -> Any:
        def begin(done: Callable[[Any], None]) -> None:
            _check_working(replica)
            replica.applier.between_groups(work, done)

        return self._calls.call(begin, discard)

    def _store_files(
        self, asked: BeginCopy, rows: _Rows, pins: ExitStack
    ) -> tuple[dict[str, File], list[SnapshotUnit]]:
        """Open the files of the store, so that they stay readable when the replica is deleted."""
        files: dict[str, File] = {}
        units: list[SnapshotUnit] = []
        directory = self._node.layout.data_of(asked.tablet_id)
        for unit in rows.files.files if rows.files is not None else ():
            name = rows_item(unit.name)
            files[name] = self._node.files.open(f"{directory}/{unit.name}")
            pins.callback(files[name].close)
            units.append(SnapshotUnit(name=name, size_bytes=unit.size_bytes, digest=unit.digest))
        return files, units

    def _until(self, condition: Callable[[], bool]) -> None:
        for _ in range(ATTEMPTS_MAX):
            if self._calls.call(lambda done: done(condition())):
                return
            self._pause()
        raise Unavailable("the log does not become durable; ask again")

    def _pause(self) -> None:
        turns = self._node.turns

        def begin(done: Callable[[Any], None]) -> None:
            turns.call_at(turns.now_us() + PAUSE_US, lambda: done(None))

        self._calls.call(begin)

    def _retire(self, close: Callable[[], Any]) -> None:
        """Release what a snapshot has pinned, on a thread."""
        self._node.copy_snapshots.submit(close)


class _Tail:
    """Passes entries through and remembers the last one."""

    def __init__(self, base: OpId) -> None:
        self.last = base

    def through(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            self.last = entry.op_id
            yield entry


def _check_working(replica: Replica) -> None:
    if replica.state in _DONE_WORKING:
        raise Unavailable(f"replica {replica.tablet_id} is {replica.state}: {replica.failure or 'it is stopping'}")
