"""The checks bite: each bug that is planted in the store ``lmdb`` is caught by the check that is named beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import StorageError
from stelae.spi.store import Edit
from stelae.testing.conformance.store import StoreConformance
from stelae_shared.lmdb_files.marker import EnvironmentMarker, ShutdownState
from stelae_store_lmdb import LmdbStore, compaction, format, keys, memtable_flush, opening, tree, view
from stelae_store_lmdb.applier import LmdbApplier
from stelae_store_lmdb.environment import Environment
from stelae_store_lmdb.format import FlushTransaction, Header
from stelae_store_lmdb.memtable import LmdbMemtable
from stelae_store_lmdb.memtable_flush import Flush
from stelae_store_lmdb.store_environment import StoreEnvironment
from stelae_store_lmdb.tree import RowTree
from stelae_store_lmdb.view import LmdbView
from tests.conformance.lmdb_moments import lived
from tests.conformance.lmdb_store import LmdbHarness, Restless, checks_here, tiny
from tests.unit.store_lmdb import test_opening, test_space


@dataclass(frozen=True)
class Bug:
    """A named replacement of one function, and the check that has to fail because of it."""

    owner: Any
    name: str
    replacement: Any
    check: Callable[..., None]
    engine: type[LmdbStore] = LmdbStore
    committing: bool = False


# -- checks that are not of the suite ------------------------------------------------------------


def every_moment(suite: StoreConformance, harness: LmdbHarness) -> None:
    """Death behind every durable step."""
    life = lived(harness, seed=0, entries=14)
    for moment in life.moments:
        life.check(moment)


def damage_of_a_value(suite: StoreConformance, harness: LmdbHarness) -> None:
    """A byte changes under a process that has the file open."""
    replica = harness.replica()
    replica.insert((1, "before the damage", 1))
    replica.flush()
    at = replica.data.read_bytes().rfind(b"before the damage")
    with replica.data.open("r+b") as file:
        file.seek(at)
        file.write(b"B")
    with pytest.raises(StorageError, match="checksum"):
        replica.rows()


def keys_of_all_lengths(suite: StoreConformance, harness: LmdbHarness) -> None:
    """Keys that begin alike and end anywhere."""
    schema = schema_from_plain({"columns": [{"name": "k", "type": "string"}], "key": ["k"]})
    chunk = keys.CHUNK_BYTES
    texts = ["", "a", "a\0", "a\0\0", "a" * 7, "a" * 7 + "\0", "a" * 8, "a" * 8 + "\0", "a" * 9, "b"]
    texts += [letter * (chunk + more) + end for letter in "ac" for more in (-1, 0, 1, chunk, 9000) for end in ("", "x")]
    replica = harness.replica(schema)
    replica.insert(*((text,) for text in texts))
    replica.flush()
    assert replica.rows() == [(text,) for text in sorted(texts)]


def of_space(check: Callable[..., None]) -> Callable[..., None]:
    """A check of ``test_space``."""
    patched = "monkeypatch" in inspect.signature(check).parameters

    def run(suite: StoreConformance, harness: LmdbHarness) -> None:
        with pytest.MonkeyPatch.context() as patch:
            check(harness.replica(), **({"monkeypatch": patch} if patched else {}))

    return run


def of_opening(check: Callable[..., None]) -> Callable[..., None]:
    """A check of ``test_opening``, on two hundred rows that are committed."""

    def run(suite: StoreConformance, harness: LmdbHarness) -> None:
        replica = harness.replica()
        replica.insert(*test_opening.ROWS)
        replica.flush()
        check(replica)

    return run


# -- bugs ----------------------------------------------------------------------------------------


def believes_any_value(key: bytes, value: Any, path: str) -> bytes:
    return bytes(value)[format.CRC_BYTES :]


def keeps_no_list(found: Any, inner: Any = format.encode_list) -> bytes:
    return bytes(inner(FlushTransaction(-1, ()) if isinstance(found, FlushTransaction) else found))


def takes_back_all_but_one(txn: Any, flush: int, path: str, inner: Any = opening._newest_transaction) -> Any:
    found = inner(txn, flush, path)
    return found if found is not None and found[0] > flush + 1 else None


def flushed_to_the_future(self: LmdbStore, inner: Any = LmdbStore.flush) -> Edit | None:
    edit = inner(self)
    return edit and Edit(manifest=edit.manifest, flushed=edit.flushed._replace(index=edit.flushed.index + 1))


def forgets_without_writing(self: LmdbStore) -> int:
    self._environment.flush(LmdbMemtable(), self._floor)
    self._layers.env, self._layers.memory = self._environment.env, LmdbMemtable()
    return 0


def writes_the_first_transaction(self: Flush, memory: LmdbMemtable, inner: Any = Flush._cut) -> Iterator[Any]:
    yield from [*inner(self, memory)][:1]


def believes_what_is_not_committed(ages: Any, limit: int, flushed: int, inner: Any = compaction.superseded) -> Any:
    return inner(ages, limit, 1 << 62)


def keeps_what_a_deletion_hid(ages: Any, limit: int, flushed: int) -> list[tuple[int, int]]:
    return [age[:2] for age in ages if age[2] and age[0] <= limit and age[1] <= flushed]


def collects_the_newest(ages: Any, limit: int, flushed: int) -> list[tuple[int, int]]:
    return [age[:2] for age in ages if age[0] <= limit and age[1] <= flushed]


def forgets_the_floor(header: Header, inner: Any = format.encode_header) -> bytes:
    return bytes(inner(Header(header.flush, header.next_node)))


def puts_long_keys_first(rest: bytes, inner: Any = keys.stem_of) -> bytes:
    found: bytes = inner(rest)
    return found if len(rest) <= keys.CHUNK_BYTES else found[:8] + b"\0" + found[9:]


def pads_without_a_count(rest: bytes, inner: Any = keys.stem_of) -> bytes:
    return rest.ljust(8, b"\0") + b"\x08" if len(rest) <= 8 else bytes(inner(rest))


def memory_hides_nothing(
    self: LmdbMemtable, limit: int, keys_max: int, below: Any, inner: Any = LmdbMemtable.drop_superseded
) -> None:
    inner(self, limit, keys_max, lambda key: False)


def sees_no_row_of_its_own_entry(self: LmdbApplier, key: bytes, inner: Any = LmdbApplier._live) -> bytes | None:
    staged, self.staged = self.staged, {}
    try:
        found: bytes | None = inner(self, key)
        return found
    finally:
        self.staged = staged


def records_the_first_schema(self: StoreEnvironment, applied: Any, schema: Any, schemas: Any, *rest: Any) -> Edit:
    return _PROPOSE(self, applied, schemas[min(schemas)], schemas, *rest)


_PROPOSE = StoreEnvironment.propose


def looks_into_the_environment_first(
    self: LmdbView, low: Any, high: Any, *rest: Any, inner: Any = LmdbView.step
) -> Any:
    env = self._layers.env
    if env is None:
        return inner(self, low, high, *rest)
    with env.read() as txn:
        memory = self._layers.memory
        backwards, keys_max, take = rest
        records = RowTree(txn, env.path).walk(low, high, backwards)
        found = memory.between(low, high, backwards, keys_max)
        last = view._merge_sources(found, memory, records, env.path, backwards, keys_max, take)
    return None if last is None else (low, last) if backwards else (last + b"\0", high)


def always_clean(self: EnvironmentMarker, inner: Any = EnvironmentMarker.claim) -> ShutdownState:
    inner(self)
    return ShutdownState.CLEAN


@contextmanager
def keeps_its_transaction(self: Environment) -> Iterator[Any]:
    txn = self._env.begin(buffers=True)
    self.__dict__.setdefault("kept", []).append(txn)
    yield txn


def finds_all_flushes(txn: Any, path: str, inner: Any = opening.read_header) -> Header:
    header = inner(txn, path)
    return Header(max(header.flush, 2), header.next_node, header.floor)


Suite = StoreConformance
BUGS = {
    "a checksum is not checked": Bug(view, "verified_contents", believes_any_value, damage_of_a_value),
    "what is ahead is not taken back": Bug(opening, "_undo_flushes", lambda env, flush: None, every_moment),
    "a flush keeps no list of what it wrote": Bug(memtable_flush, "encode_list", keeps_no_list, every_moment),
    "of several flushes ahead one stays": Bug(opening, "_newest_transaction", takes_back_all_but_one, every_moment),
    "an edit claims more than is applied": Bug(
        LmdbStore, "flush", flushed_to_the_future, Suite.test_flushed_rows_need_no_log
    ),
    "memory is emptied and nothing was written": Bug(
        LmdbStore, "_move_to_environment", forgets_without_writing, Suite.test_flushed_rows_need_no_log
    ),
    "only the first transaction is written": Bug(
        Flush, "_cut", writes_the_first_transaction, Suite.test_many_rows_in_one_entry, committing=True
    ),
    "compaction believes what is not committed": Bug(
        compaction, "superseded", believes_what_is_not_committed, every_moment
    ),
    "compaction brings deleted rows back": Bug(
        compaction,
        "superseded",
        keeps_what_a_deletion_hid,
        Suite.test_keys_that_were_deleted_and_inserted_again_appear_once,
        committing=True,
    ),
    "compaction takes the version that counts": Bug(
        compaction, "superseded", collects_the_newest, of_space(test_space.test_freed_pages_are_used_again)
    ),
    "compaction takes what a cursor sees": Bug(
        LmdbStore,
        "_compaction_limit",
        lambda self: self._floor,
        of_space(test_space.test_an_open_cursor_outlives_flushes_and_compaction),
    ),
    "a read below the floor is served": Bug(
        LmdbStore,
        "_refuse_below_floor",
        lambda self, at: None,
        Suite.test_a_read_below_the_floor_is_too_old_and_one_at_it_is_served,
    ),
    "the floor of compaction is forgotten": Bug(
        compaction,
        "encode_header",
        forgets_the_floor,
        of_space(test_space.test_the_floor_that_compaction_used_holds_after_a_restart_that_knows_no_better),
    ),
    "long keys are out of order": Bug(tree, "stem_of", puts_long_keys_first, keys_of_all_lengths),
    "a key and a longer one are the same": Bug(tree, "stem_of", pads_without_a_count, keys_of_all_lengths),
    "a deletion in memory goes while it hides a row": Bug(
        LmdbMemtable,
        "drop_superseded",
        memory_hides_nothing,
        of_space(test_space.test_a_deletion_in_memory_hides_the_row_in_the_environment),
    ),
    "an entry does not see what it did before": Bug(
        LmdbApplier, "_live", sees_no_row_of_its_own_entry, Suite.test_operations_on_one_key_take_effect_in_their_order
    ),
    "applying looks into memory only": Bug(
        RowTree,
        "newest",
        lambda self, key: None,
        Suite.test_random_entries_give_the_rows_and_row_errors_of_the_model,
        engine=Restless,
    ),
    "the schema in force is not recorded": Bug(
        StoreEnvironment,
        "propose",
        records_the_first_schema,
        Suite.test_columns_can_be_added_dropped_and_renamed_over_rows_of_every_age,
    ),
    "a step looks into the environment first": Bug(
        LmdbView,
        "step",
        looks_into_the_environment_first,
        of_space(test_space.test_a_flush_beside_a_step_hides_nothing_and_repeats_nothing),
    ),
    "a read transaction outlives its call": Bug(
        Environment, "read", keeps_its_transaction, of_space(test_space.test_an_open_cursor_holds_no_transaction)
    ),
    "the disk is not asked before a transaction": Bug(
        Environment,
        "make_room",
        lambda self, size_bytes, spread, removing=False: None,
        of_space(test_space.test_a_full_disk_keeps_rows_in_memory_until_there_is_space),
    ),
    "a failed sync is forgotten": Bug(
        StoreEnvironment,
        "_note_failed_sync",
        lambda self, error: None,
        of_opening(test_opening.test_row_e_after_a_failed_sync_nothing_is_written_now_or_later),
    ),
    "no child looks after an unclean stop": Bug(
        EnvironmentMarker,
        "claim",
        always_clean,
        of_opening(test_opening.test_row_c_a_child_looks_after_an_unclean_stop_and_only_then),
    ),
    "an environment older than the superblock passes": Bug(
        opening,
        "read_header",
        finds_all_flushes,
        of_opening(test_opening.test_row_f_an_environment_older_than_the_superblock_is_damage),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    with checks_here():
        for turn in ("sound", "planted"):
            (tmp_path / turn).mkdir()
            harness = LmdbHarness(bug.engine, tiny, root=str(tmp_path / turn), committing=bug.committing)
            if turn == "sound":
                bug.check(StoreConformance(), harness)
                continue
            monkeypatch.setattr(bug.owner, bug.name, bug.replacement)
            with pytest.raises((AssertionError, StorageError, pytest.fail.Exception)):
                bug.check(StoreConformance(), harness)
