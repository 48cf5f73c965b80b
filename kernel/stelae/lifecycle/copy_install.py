"""Installs a copy from its stage: log, rows and superblocks (steps 1 and 3 to 5 of "Follower Tablet Copy").

Source: the tablet-copy design; ``durability.md`` rules 21, 22 and 24. The stage was verified. Everything is built
beside what the node has: the log under the generation of the COPYING superblock, the rows in ``data/<tablet-id>/``,
which no replica uses. The superblock that says READY makes both of them count. So each function may be repeated, and
``abandoned_copy`` undoes them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from stelae.host.assembly import Engines
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import NO_CRASH, CrashPoints
from stelae.host.superblock import DataState, Superblock
from stelae.lifecycle.copy_cancelled import unless_cancelled
from stelae.lifecycle.copy_facts import CopyFacts, RowsForm
from stelae.lifecycle.copy_items import ItemKind, kind_of
from stelae.lifecycle.copy_rows import decode_rows
from stelae.lifecycle.copy_stage import CopyStage
from stelae.spi.copy_plan import CopySnapshot
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.log import Entry
from stelae.spi.schema import Schema
from stelae.spi.services import Files
from stelae.spi.store import VersionedRows
from stelae.spi.wal import Append, Failed, WalEngine


def copying_block(
    old: Superblock | None, tablet_id: TabletId, table_name: str, *, consensus: str, store: str
) -> Superblock:
    """Return the superblock COPYING, with which a copy begins. ``old`` is the tombstone; ``None`` for a first copy.

    It keeps the last op id and the quarantine directory of the tombstone, which an abandoned copy needs again. The
    generation rises, so that no log of an earlier time can be taken for the copied one."""
    if old is None:
        return Superblock(
            tablet_id=tablet_id,
            table_name=table_name,
            data_state=DataState.COPYING,
            consensus_engine=consensus,
            store_engine=store,
        )
    assert old.data_state is DataState.DELETED and old.tombstone is not None
    return msgspec.structs.replace(old, data_state=DataState.COPYING, generation=old.generation + 1, store_engine=store)


def ready_block(copying: Superblock, facts: CopyFacts, snapshot: CopySnapshot, manifest: bytes) -> Superblock:
    """Return the superblock READY, which ends a copy.

    The last op id of the tombstone is cleared, because the copied log has reached it (rule 18), and the quarantine
    directory with it. Raises ``StorageError`` if the log has not reached it."""
    last = copying.tombstone
    if last is not None and (isinstance(last, str) or snapshot.last < last):
        fact = f"the copied log ends at {snapshot.last}, but this replica had entries up to {last}"
        raise StorageError(f"{fact}; it must not become READY")
    return msgspec.structs.replace(
        copying,
        table_name=facts.table_name,
        data_state=DataState.READY,
        schemas=facts.schemas,
        partition=facts.partition,
        manifest=manifest,
        flushed=facts.flushed,
        timestamp=facts.timestamp,
        results=facts.results,
        tombstone=None,
        quarantine=None,
    )


# -- the log, one group at a time, because all tablets of the node share the log engine --------------------------------


def begin_log(wal: WalEngine, log: LogId, base: OpId) -> None:
    """Create the empty log. It replaces what an earlier attempt left. Durable on return."""
    wal.drop(log)
    wal.create(log, base)


def append_piece(wal: WalEngine, log: LogId, entries: list[Entry], commit_hint: int) -> None:
    """Append a piece of the log. Durable on return. Raises the error if the log engine refuses it."""
    outcome = wal.commit({log: Append(entries=tuple(entries), commit_hint=commit_hint)}, sync=True)[log]
    if isinstance(outcome, Failed):
        raise outcome.error


def check_log(wal: WalEngine, log: LogId, snapshot: CopySnapshot) -> None:
    """Check that the log begins and ends as the snapshot. Raises ``StorageError`` if it does not."""
    made = wal.logs()[log]
    if (made.base, made.last) != (snapshot.base, snapshot.last) or made.damage is not None:
        fact = f"the copied log has {made.base} to {made.last}, not {snapshot.base} to {snapshot.last}"
        raise StorageError(fact)


# -- the rows ----------------------------------------------------------------------------------------------------------


def install_rows(
    files: Files,
    layout: DirectoryLayout,
    stage: CopyStage,
    snapshot: CopySnapshot,
    facts: CopyFacts,
    engines: Engines,
    cancelled: Callable[[], bool],
    crash: CrashPoints = NO_CRASH,
) -> bytes:
    """Install the rows, and return the manifest of the store. Durable on return. May take long.

    Files of a store are moved as they are. An export is imported into a new store of this node's engine. An import asks
    ``cancelled`` before each batch.

    Raises:
        StorageError: the rows cannot be read or written.
        CopyCancelled: an import was cancelled. The directory of the store has a part of the rows.
    """
    directory = layout.data_of(snapshot.tablet_id)
    files.remove_tree(directory)
    names = [item.name for item in snapshot.items if kind_of(item.name) is not ItemKind.LOG]
    if facts.rows_form is RowsForm.FILES:
        if names:
            files.rename(stage.directory_of(ItemKind.ROWS), directory)
            files.sync_directory(layout.stage_of(snapshot.tablet_id))
        manifest = facts.manifest
    else:
        manifest = _import(directory, stage, names, facts, engines, cancelled)
    files.sync_directory(layout.data)
    crash.hit("copy.after_rows")
    return manifest


def _import(
    directory: str,
    stage: CopyStage,
    names: list[str],
    facts: CopyFacts,
    engines: Engines,
    cancelled: Callable[[], bool],
) -> bytes:
    schemas = {schema.version: schema for schema in map(Schema.from_bytes, facts.schemas)}
    if facts.flushed == ZERO:
        return b""
    store = engines.store.open(directory, b"", ZERO, schemas, engines.store_config, engines.services)
    try:
        store.set_history_floor(facts.floor)  # Before the flush, so that every manifest has it.
        store.import_(unless_cancelled(_batches(stage, names, schemas), cancelled), facts.flushed)
        edit = store.flush()
    finally:
        store.close()
    if edit is None or edit.flushed != facts.flushed:
        found = None if edit is None else edit.flushed
        raise StorageError(f"the store has flushed {found} after an import up to {facts.flushed}", path=directory)
    return edit.manifest


def _batches(stage: CopyStage, names: list[str], schemas: Mapping[int, Schema]) -> Iterator[VersionedRows]:
    for name in names:
        yield from decode_rows(name, stage.read(name), schemas)
