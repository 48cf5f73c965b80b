"""Applying: what a store answers wrongly fails its replica, with nothing counted as applied and nobody answered;
and of the schemas that were proposed, one follows the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.apply import Applier, ApplyGroup
from stelae.host.entry_cache import EntryCache
from stelae.host.exactly_once_results import ResultsTable
from stelae.rows.batcher import Batcher
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.rows.plain_schema import schema_from_plain, schema_to_plain
from stelae.spi.errors import Corrupt, Full, SchemaMismatch, StorageError
from stelae.spi.ids import ZERO, ClientId, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.payload import PayloadClient, PayloadSequenceRange, WritePayload, encode_payload
from stelae.spi.schema import Schema
from stelae.spi.store import ApplyResult, RowFault
from stelae.spi.write import OpKind, RowCode, digests_of

SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
LAST = OpId(1, 1)


class Pool:
    """Runs work when it is told to."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.due.append(lambda: done(work()))


class World:
    """One entry that inserts a row, and a store that answers what it is given."""

    def __init__(self, faults: tuple[RowFault, ...], *, inline: bool) -> None:
        batcher = Batcher(SCHEMA)
        (run,) = sequence_ranges_of([(1, operation(OpKind.INSERT, [(7,)]))])
        batcher.add(ClientId("c"), 1, run, digests_of(run), None)
        ((body, _),) = batcher.build()
        cache = EntryCache(ZERO, 1 << 20)
        cache.append((Entry(LAST, EntryKind.WRITE, 5, body),), None)
        store = MagicMock()
        store.applies_inline.return_value = inline
        store.apply.return_value = [ApplyResult(LAST, faults)]
        self.pool, self.answered, self.failures = Pool(), MagicMock(), []  # type: ignore[var-annotated]
        self.later: list[Callable[[], None]] = []
        self.reader = MagicMock()
        writer = MagicMock()
        writer.durable.return_value = LAST
        self.applier = Applier(
            log=LogId(TabletId("t"), 1),
            store=store,
            results=ResultsTable(),
            applied=ZERO,
            schemas=(SCHEMA.to_bytes(),),
            timestamp=0,
            cache=cache,
            reader=self.reader,
            writer=writer,
            pool=self.pool,
            metrics=MagicMock(),
            on_answered=self.answered,
            on_schema=lambda _: None,
            on_applied=lambda _: None,
            on_failed=lambda reason, error: self.failures.append(reason),
            retry_later=self.later.append,
        )
        self.applier.commit_to(1)
        while self.pool.due:
            self.pool.due.pop()()


@pytest.mark.parametrize("inline", [True, False])
def test_a_fault_of_no_row_fails_the_replica_and_nothing_counts_as_applied(inline: bool) -> None:
    world = World((RowFault(3, RowCode.NOT_FOUND),), inline=inline)
    (reason,) = world.failures
    assert "not a row of the entry" in reason
    assert world.applier.applied == ZERO
    world.answered.assert_not_called()


@pytest.mark.parametrize("inline", [True, False])
def test_an_entry_that_is_applied_is_answered_and_counts(inline: bool) -> None:
    world = World((RowFault(0, RowCode.ALREADY_PRESENT),), inline=inline)
    assert world.failures == [] and world.applier.applied == LAST
    world.answered.assert_called_once()


def test_entries_that_cannot_be_read_now_are_read_again_and_damage_fails_the_replica() -> None:
    world = World((), inline=True)
    applier = world.applier
    applier.cache.append((Entry(OpId(1, 2), EntryKind.NOOP, 6, b""),), None)
    applier.cache.get = MagicMock(return_value=None)  # type: ignore[method-assign]
    applier.commit_to(2)
    (call,) = world.reader.read.call_args_list
    arrived = call.args[-1]
    arrived(Full("too many files are open", path="/log"))
    assert world.failures == [] and applier.applied == LAST
    (again,) = world.later
    again()
    assert world.reader.read.call_count == 2, "it is asked for again"
    arrived(StorageError("the read failed", path="/log"))
    assert world.failures == [], "what cannot be read now is not damage"
    world.later[-1]()
    arrived(Corrupt("the body of an entry fails its checksum", path="/log", offset=9))
    (reason,) = world.failures
    assert "cannot be read" in reason


def later(version: int, *names: str) -> Schema:
    """The schema with nullable columns of these names added."""
    more = [{"name": name, "type": "string", "nullable": True} for name in names]
    columns = [*schema_to_plain(SCHEMA)["columns"], *more]
    return schema_from_plain({"version": version, "columns": columns, "key": ["id"]})


def changes(*schemas: Schema) -> ApplyGroup:
    entries = [Entry(OpId(1, n), EntryKind.SCHEMA, n, schema.to_bytes()) for n, schema in enumerate(schemas, start=1)]
    return ApplyGroup(entries, ResultsTable(), SCHEMA)


def test_a_schema_that_follows_the_one_in_force_is_applied() -> None:
    group = changes(later(2, "a"), later(3, "a", "b"))
    assert [entry.change for entry in group.to_apply] == group.schemas == [later(2, "a"), later(3, "a", "b")]
    answers = [answered.answers[0][0].result for answered in group.record([ApplyResult(OpId(1, n)) for n in (1, 2)])]
    assert [answer.refusal for answer in answers] == ["", ""]


def test_of_two_leaders_schemas_with_one_version_the_second_changes_nothing_and_says_so() -> None:
    group = changes(later(2, "a"), later(2, "b"), later(2, "a"), later(4, "a"))
    assert group.schemas == [later(2, "a")]
    answers = [answered.answers[0][0].result for answered in group.record([ApplyResult(OpId(1, 1))])]
    assert [answer.refusal for answer in answers] == ["", SchemaMismatch.code, "", SchemaMismatch.code]


def of_version(version: int, sequence: int, first_incomplete: int = 1) -> bytes:
    """The body of an entry with one write of client ``c``."""
    client = PayloadClient(ClientId("c"), first_incomplete)
    return encode_payload(WritePayload(version, (client,), (PayloadSequenceRange(0, sequence, (0,), (sequence,)),), ()))


def test_rows_of_an_older_schema_that_follow_the_change_in_the_log_are_refused_and_not_remembered() -> None:
    """They were applied. A client whose retry met the new schema was told that its write has no effect, and it had."""
    schema = later(2, "a").to_bytes()
    bodies = [
        (EntryKind.WRITE, of_version(1, 1)),
        (EntryKind.SCHEMA, schema),
        (EntryKind.WRITE, of_version(1, 2)),
        (EntryKind.WRITE, of_version(1, 1)),
        (EntryKind.WRITE, of_version(2, 3)),
    ]
    results = ResultsTable()
    entries = [Entry(OpId(1, n), kind, n, body) for n, (kind, body) in enumerate(bodies, start=1)]
    group = ApplyGroup(entries, results, SCHEMA)
    assert [sorted(entry.skip) for entry in group.to_apply] == [[], [], [0], [0], []]
    answered = group.record([ApplyResult(entry.op_id) for entry in group.to_apply])
    told = {one.op_id.index: one.answers[0][0].result for one in answered}
    assert [told[n].refusal for n in range(1, 6)] == ["", "", SchemaMismatch.code, "", ""]
    assert told[4].timestamp == 1, "what took effect before keeps its answer"
    assert results.answer(ClientId("c"), 2, 2) is None
