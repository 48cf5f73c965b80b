"""The suite bites: each bug that is planted in the columnar store is caught by the check that is named beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace as replaced

from stelae.rows.defaults import Defaults
from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import SchemaMismatch, StorageError
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Layout, Schema
from stelae.spi.store import Changes, Edit, VersionedRows
from stelae.testing.conformance.store import StoreConformance, StoreHarness
from stelae_store_columnar import (
    ColumnarStore,
    block_merging,
    block_writer,
    bloom,
    memory_chunks,
    store,
    verified_file,
    version_resolver,
    versions,
)
from stelae_store_columnar.begun_row import BegunRow, GivenColumns
from stelae_store_columnar.block import ColumnarBlock
from stelae_store_columnar.block_directory import BlockDirectory
from stelae_store_columnar.block_maintenance import BlockMaintenance
from stelae_store_columnar.block_merging import BlockMerger, whole_versions
from stelae_store_columnar.levels import Levels, RowGroup
from stelae_store_columnar.memtable import ColumnarMemtable
from stelae_store_columnar.newest_versions import NewestVersions
from stelae_store_columnar.prepared_writes import PreparedWrites
from stelae_store_columnar.pruning import Pruner
from stelae_store_columnar.schema_adapter import SchemaAdapter
from stelae_store_columnar.short_read import ShortRead
from stelae_store_columnar.snapshot import ColumnarSnapshot
from stelae_store_columnar.step_plan import StepPlan
from stelae_store_columnar.step_reader import StepReader
from stelae_store_columnar.version_resolver import VersionResolver
from stelae_store_columnar.versions import RowVersions
from tests.conformance import test_store_columnar as suite
from tests.conformance.test_store_columnar import Restless, Sluggish, tiny

LIMITED = StoreConformance.test_a_limit_cuts_the_rows_of_a_scan_at_any_time
WRITTEN_ANEW = StoreConformance.test_rows_that_later_entries_wrote_anew_are_the_newest
SHORT = StoreConformance.test_rows_of_many_versions_and_deletions_are_passed_over
ALTERED = StoreConformance.test_an_altered_table_always_agrees_with_the_model

Check = Callable[[StoreConformance, StoreHarness], None]


def claims_more_than_it_wrote(
    self: BlockMaintenance, state: Any, floor: int, inner: Any = BlockMaintenance.flushed
) -> Any:
    return inner(self, replace(state, chunks=state.chunks[:-1]), floor)


def leaves_out_equal_rows(
    view: Any, after: int, until: int, spec: ScanSpec, inner: Any = store.changes
) -> Iterator[Changes]:
    before = {row for found in inner(view, 0, after, spec) for row in found.changed.to_rows()}
    for found in inner(view, after, until, spec):
        is_new = [row not in before for row in found.changed.to_rows()]
        yield replaced(found, changed=found.changed.filter(pa.array(is_new, pa.bool_())))


def flushed_to_the_future(self: ColumnarStore, inner: Any = ColumnarStore.flush) -> Edit | None:
    edit = inner(self)
    return edit and Edit(manifest=edit.manifest, flushed=edit.flushed._replace(index=edit.flushed.index + 1))


def removes_before_the_commit(
    self: BlockMaintenance, *given: Any, inner: Any = BlockMaintenance.propose
) -> Edit | None:
    edit: Edit | None = inner(self, *given)
    if edit is not None:
        self.on_commit(edit)
    return edit


def trusts_a_directory_that_exists(self: BlockDirectory, inner: Any = BlockDirectory.next_path) -> str:
    """A killed process may have created it, and not yet synced its name."""
    self._created = self._created or self._files.exists(self._path)
    return inner(self)  # type: ignore[no-any-return]


def drops_every_deletion(
    self: VersionResolver, parts: Any, floor: int, bottom: bool, inner: Any = VersionResolver.needed
) -> Any:
    return inner(self, parts, 1 << 62 if not bottom else floor, True)


def drops_too_much_history(
    self: VersionResolver, parts: Any, floor: int, bottom: bool, inner: Any = VersionResolver.needed
) -> Any:
    return inner(self, parts, floor + 1000, bottom)


def forgets_what_is_below(state: Any, *given: Any) -> Any:
    return whole_versions(replace(state, levels=Levels()), *given)


def prunes_what_is_not_alone(self: Pruner, part: Any, *, alone: bool, inner: Any = Pruner._cannot_match) -> Any:
    return inner(self, part, alone=True)


def prunes_by_absent_defaults(self: SchemaAdapter, layout: Any, versions: Any) -> bool:
    return True


def settles_what_overlaps(self: BlockMerger, state: Any, floor: int, inner: Any = BlockMerger.flushed) -> Any:
    found = inner(self, state, floor)
    return Levels([*found.level1.blocks, *(level.blocks[0] for level in found.level0)])


def deletes_count_as_rows(self: ColumnarBlock, piece: int, row: int) -> bool:
    return False


def takes_the_newest_for_a_row(self: ShortRead, part: Any, keys: Any, places: Any, last: int, whole: Any) -> None:
    whole[keys[last]] = last


def prefers_what_is_older(
    self: BegunRow, columns: Any, place: int, stamp: int, given: Any, inner: Any = BegunRow.take
) -> Any:
    self._lacking |= given
    return inner(self, columns, place, stamp, given)


def replaces_what_is_newer(self: ShortRead, rows: Any, inner: Any = ShortRead._take_whole) -> None:
    inner(self, rows)
    self._newest.update(rows)


def joins_what_is_older_last(self: ShortRead, parts: Any, inner: Any = ShortRead._joined) -> Any:
    return inner(self, parts[::-1])


def decodes_on_the_loop(self: RowGroup, *, may_block: bool = True, inner: Any = RowGroup.decoded) -> Any:
    return inner(self, may_block=True)


def ends_after_a_short_step(self: StepPlan, rest: Any, inner: Any = StepPlan._plan) -> None:
    inner(self, rest)
    self._rest = None


def passes_over(checks: StoreConformance, harness: StoreHarness) -> None:
    checks.passed_over_rows = 300
    checks.test_the_token_advances_where_no_row_matches(harness, Order.KEY, deleted=True)


def selects_by_number(self: RowVersions, ids: Any, inner: Any = RowVersions.select) -> RowVersions:
    return self if len(self.columns) == len(ids) else inner(self, ids)


def combines_by_number(parts: Any, types: Any, inner: Any = versions.combined) -> RowVersions:
    return parts[0] if len(parts) == 1 and len(parts[0].columns) == len(types) else inner(parts, types)


def gives_the_latest_default(self: Defaults, schema: Schema) -> None:
    self._added.update(schema.by_id)


def fills_by_the_schema_in_force(self: Defaults, current: Schema, written: Schema) -> Layout:
    return current.layout


def shows_no_rows_while_it_flushes(self: ColumnarStore, inner: Any = ColumnarStore.flush) -> Edit | None:
    memory, self._memory = self._memory, ColumnarMemtable()
    self._publish()
    Event().wait(0.05)  # For long enough that readers see it.
    self._memory = memory
    self._publish()
    edit: Edit | None = inner(self)
    return edit


def exports_what_is_there_by_then(self: ColumnarStore, inner: Any = ColumnarStore.export) -> Iterator[VersionedRows]:
    yield next(inner(self))
    yield from inner(self)


def describes_the_bytes_of_now(self: ColumnarSnapshot, number: int, inner: Any = ColumnarSnapshot._units_of) -> Any:
    return tuple(replaced(unit, digest="0" * 64) for unit in inner(self, number))


def pins_the_edit_before(self: BlockMaintenance, inner: Any = BlockMaintenance.committed_blocks) -> Any:
    edit, blocks = inner(self)
    return replaced(edit, flushed=edit.flushed._replace(index=edit.flushed.index - 1)), blocks[:-1]


def reads_any_chunk(file: Any, chunk: Any, path: str) -> bytes:
    return bytes(file.pread(chunk.size_bytes, chunk.offset))


BUGS: list[tuple[Any, str, Any, type[ColumnarStore], Any]] = [
    (
        BlockDirectory,
        "next_path",
        trusts_a_directory_that_exists,
        ColumnarStore,
        StoreConformance.test_what_a_start_finds_after_a_kill_at_any_operation_survives_a_later_crash,
    ),
    (
        BlockDirectory,
        "hold",
        lambda self, names: None,
        ColumnarStore,
        StoreConformance.test_a_snapshot_of_files_does_not_change_until_it_is_released,
    ),
    (
        BlockDirectory,
        "close",
        lambda self: None,
        ColumnarStore,
        StoreConformance.test_a_snapshot_that_is_released_after_its_store_was_closed_removes_nothing,
    ),
    (
        BlockDirectory,
        "release",
        lambda self, names: None,
        ColumnarStore,
        StoreConformance.test_a_snapshot_of_files_does_not_change_until_it_is_released,
    ),
    (
        ColumnarSnapshot,
        "_units_of",
        describes_the_bytes_of_now,
        ColumnarStore,
        StoreConformance.test_the_files_of_a_snapshot_and_its_edit_are_the_store_elsewhere,
    ),
    (
        BlockMaintenance,
        "committed_blocks",
        pins_the_edit_before,
        ColumnarStore,
        StoreConformance.test_the_files_of_a_snapshot_and_its_edit_are_the_store_elsewhere,
    ),
    (
        BlockDirectory,
        "remove",
        lambda self, names: None,
        ColumnarStore,
        StoreConformance.test_the_commit_of_an_edit_removes_the_files_that_it_replaces,
    ),
    (
        BlockDirectory,
        "remove_orphans",
        lambda self, live: None,
        ColumnarStore,
        StoreConformance.test_a_start_removes_the_files_of_edits_without_effect,
    ),
    (
        verified_file,
        "read_chunk",
        reads_any_chunk,
        ColumnarStore,
        StoreConformance.test_a_flipped_bit_is_reported_or_harms_nothing,
    ),
    (
        ColumnarStore,
        "memory_bytes",
        lambda self: 1 << 20,
        ColumnarStore,
        StoreConformance.test_flushed_rows_do_not_count_as_memory,
    ),
    (
        ColumnarStore,
        "flush",
        shows_no_rows_while_it_flushes,
        ColumnarStore,
        StoreConformance.test_other_threads_read_whole_entries_while_others_are_applied_and_flushed,
    ),
    (
        ColumnarStore,
        "export",
        exports_what_is_there_by_then,
        ColumnarStore,
        StoreConformance.test_an_export_returns_the_rows_of_the_time_when_it_was_opened,
    ),
    (
        BlockMaintenance,
        "flushed",
        claims_more_than_it_wrote,
        ColumnarStore,
        StoreConformance.test_flushed_rows_need_no_log,
    ),
    (ColumnarStore, "flush", flushed_to_the_future, ColumnarStore, StoreConformance.test_flushed_rows_need_no_log),
    (
        BlockMaintenance,
        "propose",
        removes_before_the_commit,
        Restless,
        StoreConformance.test_an_edit_that_was_not_committed_leaves_the_previous_state,
    ),
    (
        BlockDirectory,
        "sync",
        lambda self: None,
        ColumnarStore,
        StoreConformance.test_after_a_crash_at_any_entry_the_log_restores_every_row,
    ),
    (
        VirtualFile,
        "sync",
        lambda self, data_only=False: None,
        ColumnarStore,
        StoreConformance.test_after_a_crash_at_any_entry_the_log_restores_every_row,
    ),
    (
        PreparedWrites,
        "need_no_file",
        lambda self, entries, schema: True,
        ColumnarStore,
        StoreConformance.test_an_entry_applied_on_the_event_loop_uses_no_file,
    ),
    (
        VersionResolver,
        "needed",
        drops_every_deletion,
        Sluggish,
        StoreConformance.test_random_entries_give_the_rows_and_row_errors_of_the_model,
    ),
    (
        VersionResolver,
        "needed",
        drops_too_much_history,
        Restless,
        StoreConformance.test_a_read_in_the_past_returns_the_rows_of_that_time,
    ),
    (
        block_merging,
        "whole_versions",
        forgets_what_is_below,
        Restless,
        StoreConformance.test_updates_of_different_columns_add_up_over_flushed_and_unflushed_rows,
    ),
    (
        Pruner,
        "_cannot_match",
        prunes_what_is_not_alone,
        ColumnarStore,
        StoreConformance.test_a_replaced_version_of_a_row_matches_no_predicate,
    ),
    (
        SchemaAdapter,
        "needs_no_defaults",
        prunes_by_absent_defaults,
        ColumnarStore,
        StoreConformance.test_predicates_and_reads_in_the_past_see_the_default_in_older_rows,
    ),
    (
        bloom,
        "may_hold",
        lambda bitmap, key: False,
        Restless,
        StoreConformance.test_keys_and_cells_may_be_as_long_as_the_highest_limits,
    ),
    (
        BlockMerger,
        "flushed",
        settles_what_overlaps,
        Restless,
        StoreConformance.test_random_entries_give_the_rows_and_row_errors_of_the_model,
    ),
    (
        ColumnarBlock,
        "is_deletion",
        deletes_count_as_rows,
        Restless,
        StoreConformance.test_random_entries_give_the_rows_and_row_errors_of_the_model,
    ),
    (
        NewestVersions,
        "is_gap",
        lambda self, first, last: True,
        ColumnarStore,
        StoreConformance.test_random_entries_give_the_rows_and_row_errors_of_the_model,
    ),
    (
        ColumnarStore,
        "set_history_floor",
        lambda self, at: None,
        Restless,
        suite.TestMerged.test_memory_of_versions_below_the_floor_is_freed,
    ),
    (
        Defaults,
        "add",
        gives_the_latest_default,
        ColumnarStore,
        StoreConformance.test_a_later_default_changes_no_row_that_exists,
    ),
    (
        Defaults,
        "layout",
        fills_by_the_schema_in_force,
        ColumnarStore,
        StoreConformance.test_rows_made_for_an_earlier_version_have_its_defaults,
    ),
    (
        store,
        "changes",
        leaves_out_equal_rows,
        ColumnarStore,
        StoreConformance.test_a_row_that_is_written_with_its_own_values_is_in_a_diff,
    ),
    (StepReader, "passed", None, ColumnarStore, passes_over),
    *(
        (owner, name, bug, ColumnarStore, check)
        for owner, name, bug, check in (
            (ShortRead, "_look_at", takes_the_newest_for_a_row, LIMITED),
            (BegunRow, "take", prefers_what_is_older, SHORT),
            (ShortRead, "_take_whole", replaces_what_is_newer, SHORT),
            (ShortRead, "_joined", joins_what_is_older_last, WRITTEN_ANEW),
            (StepPlan, "_plan", ends_after_a_short_step, SHORT),
            (RowGroup, "decoded", decodes_on_the_loop, LIMITED),
            (GivenColumns, "of", lambda self, number: frozenset(range(3)), SHORT),
        )
    ),
]
"""Where, what, its replacement, the engine that meets it, and the check that must fail."""


@cache
def check_without_bugs(engine: type[ColumnarStore], check: Check) -> None:
    """Run a check on the store as it is, once for all the bugs that it must catch."""
    check(StoreConformance(), StoreHarness(engine, no_cache))


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "bug", "engine", "check"), BUGS, ids=[f"{b[1]}-{getattr(b[2], '__name__', '')}" for b in BUGS]
)
def test_the_suite_catches_a_planted_bug(
    owner: Any, name: str, bug: Any, engine: type[ColumnarStore], check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_without_bugs(engine, check)
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, StorageError, SchemaMismatch)):
        check(StoreConformance(), StoreHarness(engine, no_cache))


@pytest.mark.parametrize("check", [StoreConformance.test_one_change_may_drop_a_column_and_add_another, ALTERED])
def test_the_suite_catches_columns_that_are_compared_by_number(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """One change that dropped a column and added another failed every replica at its next flush. It takes all of
    these places together: each of them, as it should be, mends what the others leave."""
    monkeypatch.setattr(RowVersions, "select", selects_by_number)
    for module in (version_resolver, memory_chunks, block_writer):
        monkeypatch.setattr(module, "combined", combines_by_number)
    with pytest.raises((AssertionError, KeyError)):
        check(StoreConformance(), StoreHarness(ColumnarStore, no_cache))


def test_the_suite_catches_a_store_that_serves_below_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ColumnarStore, "_refuse_below_floor", lambda self, at: None)
    check = StoreConformance.test_a_read_below_the_floor_is_too_old_and_one_at_it_is_served
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        check(StoreConformance(), StoreHarness(ColumnarStore, tiny))


def no_cache() -> Any:
    """Small sizes, and nothing decoded is kept: every read goes to the files."""
    return replace(tiny(), cache_bytes=0)
