"""Applying: what a store answers wrongly fails its replica, with nothing counted as applied and nobody answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.apply import Applier
from stelae.host.entry_cache import EntryCache
from stelae.host.results import ResultsTable
from stelae.rows.batcher import Batcher
from stelae.rows.operations import operation, runs_of
from stelae.spi.ids import ZERO, ClientId, LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.schema import Schema
from stelae.spi.store import ApplyResult, RowFault
from stelae.spi.write import OpKind, RowCode, digests_of

SCHEMA = Schema.from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
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
        (run,) = runs_of([(1, operation(OpKind.INSERT, [(7,)]))])
        batcher.add(ClientId("c"), 1, run, digests_of(run), None)
        ((body, _),) = batcher.build()
        cache = EntryCache(ZERO, 1 << 20)
        cache.append((Entry(LAST, EntryKind.WRITE, 5, body),), None)
        store = MagicMock(capabilities=frozenset({"apply_inline"} if inline else ()))
        store.apply.return_value = [ApplyResult(LAST, faults)]
        self.pool, self.answered, self.failures = Pool(), MagicMock(), []  # type: ignore[var-annotated]
        writer = MagicMock()
        writer.durable.return_value = LAST
        self.applier = Applier(
            log=LogId(TabletId("t"), 1),
            store=store,
            results=ResultsTable(),
            applied=ZERO,
            timestamp=0,
            cache=cache,
            reader=MagicMock(),
            writer=writer,
            pool=self.pool,
            on_answered=self.answered,
            on_applied=lambda _: None,
            on_failed=self.failures.append,
        )
        self.applier.commit_to(1)
        while self.pool.due:
            self.pool.due.pop()()


@pytest.mark.parametrize("inline", [True, False])
def test_a_fault_of_no_row_fails_the_replica_and_nothing_counts_as_applied(inline: bool) -> None:
    world = World((RowFault(3, RowCode.NOT_FOUND),), inline=inline)
    (reason,) = world.failures
    assert "at fault" in reason
    assert world.applier.applied == ZERO
    world.answered.assert_not_called()


@pytest.mark.parametrize("inline", [True, False])
def test_an_entry_that_is_applied_is_answered_and_counts(inline: bool) -> None:
    world = World((RowFault(0, RowCode.ALREADY_PRESENT),), inline=inline)
    assert world.failures == [] and world.applier.applied == LAST
    world.answered.assert_called_once()
