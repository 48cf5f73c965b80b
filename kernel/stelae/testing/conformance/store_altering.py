"""Conformance checks for stores: random runs of a table that is altered again and again, compared with a plain model.

A run draws schema changes (columns added, dropped, renamed, added again under an old name, several steps in one
version), writes for the schema in force and for earlier ones, flushes, compactions, crashes, restarts, moves of the
history floor and copies by export. After each step the store must agree with the model: rows now and in the past,
projections, predicates, both orders, lookups, diffs, checksums, and cursors that were opened before.

After a change of an engine, do more runs than the suite does::

    STELAE_LIVES=500 python -m pytest tests/conformance/test_store_mine.py -k altered_table"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stelae.rows.keys import encode_keys
from stelae.spi.errors import TooOld
from stelae.spi.ids import OpId
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema
from stelae.spi.store import Cursor
from stelae.testing.conformance.store_altering_draws import Draws
from stelae.testing.conformance.store_altering_model import AlteringModel
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness
from stelae.testing.conformance.store_lookup import check_lookups
from stelae.testing.conformance.store_model import Op, Row
from stelae.testing.conformance.store_short_scans import check_short_scans

RUNS = 3  #: Random runs of the check; the environment variable ``STELAE_LIVES`` sets another number.
STEPS = 40  #: Steps of each run.


class AlteringChecks:
    """Checks of a store whose schema changes."""

    def test_an_altered_table_always_agrees_with_the_model(self, harness: StoreHarness) -> None:
        for seed in range(int(os.environ.get("STELAE_LIVES", RUNS))):
            check_altered_table(harness, seed, STEPS)


def check_altered_table(harness: StoreHarness, seed: int, steps: int) -> None:
    """Do one random run.

    Raises:
        AssertionError: store and model differ; the message has the seed and the last steps.
    """
    run = AlteringRun(harness, seed)
    try:
        for _ in range(steps):
            run.step()
        run.copy()
        run.compare()
    except Exception as error:
        raise AssertionError(f"seed {seed}, after {len(run.steps)} steps: {'; '.join(run.steps[-40:])}") from error


class AlteringRun:
    """One replica and its model.

    Attributes:
        steps: what was done so far, as text.
    """

    def __init__(self, harness: StoreHarness, seed: int) -> None:
        self.steps: list[str] = []
        self._harness = harness
        self._draws = Draws(seed)
        first = self._draws.schema()
        self._model = AlteringModel(first)
        self._replica: HarnessReplica = harness.replica(first)
        self._floor = 0
        self._history = "history" in harness.engine.capabilities
        self._cursors: list[tuple[Cursor, list[Row]]] = []

    @property
    def _now(self) -> int:
        return self._model.history[-1][0]

    def step(self) -> None:
        """Draw and do one step, then compare."""
        draw = self._draws.below
        match draw(22):
            case 0 | 1 | 2 | 3 | 4 | 5 | 6:
                self._write(self._model.schema, self._draws.operations(self._model.schema))
            case 7 | 8:
                written = self._model.schemas[max(1, self._model.schema.version - 1 - draw(2))]
                self._write(written, self._draws.operations(written))
            case 9 | 10:
                self._alter(self._draws.changed(self._model.schema))
            case 11:
                self._alter_between_flushes()
            case 12 | 13:
                self._flush()
            case 14 | 15:
                self._note("compact")
                self._replica.compact(1 + draw(4))
            case 16:
                self._restart(clean=bool(draw(2)))
            case 17:
                self._move_floor()
            case 18:
                self.copy()
            case 19 | 20:
                self._update_again_and_again()
            case _:
                self._open_cursor()
        self.compare()

    # -- steps -----------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._note("flush")
        self._replica.flush()

    def _write(self, written: Schema, ops: list[Op], *, again: bool = False) -> None:
        """Write. With ``again``, the entry has the timestamp of the last one."""
        stamp = self._now if again else 10 * (len(self._replica.log) + 1)
        self._note(f"write for version {written.version} at {stamp}: {ops}")
        faults = self._replica.write(*ops, schema=written, timestamp=stamp)
        assert faults == self._model.apply(stamp, written, ops)

    def _update_again_and_again(self) -> None:
        """Update one row column by column, and look it up between the updates, while the schema may change.

        An engine may keep what it completed from many versions for the next lookups. A row has many if their updates
        leave a column alone, so that most runs update the same column."""
        draw = self._draws.below
        row = self._draws.below(1 << 20)
        of_first = draw(4) > 0
        for _ in range(6 + draw(10)):
            schema, rows = self._model.schema, self._model.rows()
            if draw(8) == 0:
                self._alter(self._draws.changed(schema))
            elif rows:
                self._write(
                    schema, [self._draws.update(schema, rows[row % len(rows)], of_first=of_first)], again=draw(3) == 0
                )
            else:
                self._write(schema, self._draws.whole_rows(schema))
            self._look_up(None)
            if self._history:
                self._look_up(self._floor + draw(self._now - self._floor + 1))

    def _alter(self, schema: Schema) -> None:
        self._note(f"schema {schema}")
        self._replica.change_schema(schema)
        self._model.change(10 * len(self._replica.log), schema)

    def _alter_between_flushes(self) -> None:
        """Flush rows of a single operation under a new schema with the same number of columns."""
        self._flush()
        self._write(self._model.schema, self._draws.whole_rows(self._model.schema))
        self._alter(self._draws.replaced(self._model.schema))
        if self._draws.below(3) == 0:
            self._restart(clean=False)
        self._flush()

    def _restart(self, *, clean: bool) -> None:
        """Restart as a node does: the superblock has the schemas up to the last flush, the log has the later ones."""
        self._note("restart" if clean else "crash")
        self._close_cursors()
        replica = self._replica
        if clean:
            replica.flush()
        replica.schemas = self._schemas_at(replica.flushed)
        replica.crash(self._draws.below(1000))
        replica.schemas = dict(self._model.schemas)
        if self._draws.below(2):
            replica.store.set_history_floor(self._floor)
        else:
            self._read_below_the_floor()

    def _read_below_the_floor(self) -> None:
        """Read below the floor after a restart: a store that has forgotten the floor must still have the rows."""
        at = self._draws.below(self._floor + 1)
        try:
            found = self._replica.rows(at)
        except TooOld:
            pass
        else:
            assert found == self._model.rows(at)
        self._replica.store.set_history_floor(self._floor)

    def _schemas_at(self, flushed: OpId) -> dict[int, Schema]:
        changes = [e.change for e in self._replica.log if e.op_id <= flushed and isinstance(e.change, Schema)]
        return {schema.version: schema for schema in (self._model.schemas[1], *changes)}

    def _move_floor(self) -> None:
        self._floor = max(self._floor, self._now - 10 * self._draws.below(12))
        self._note(f"floor {self._floor}")
        self._replica.store.set_history_floor(self._floor)

    def copy(self) -> None:
        """Replace the replica by one that imports its export, as a replica on another node does."""
        self._note("copy")
        self._close_cursors()
        before = self._replica
        after = self._harness.replica(self._model.schema)
        after.schemas = dict(self._model.schemas)
        after.open()
        after.store.import_(before.store.export(), before.store.applied)
        after.store.set_history_floor(self._floor)
        after.log = before.log
        after.flush()
        before.store.close()
        self._replica = after

    def _open_cursor(self) -> None:
        self._note("cursor")
        cursor = self._replica.store.scan(ScanSpec(order=Order.KEY))
        self._cursors.append((cursor, self._model.rows()))

    def _close_cursors(self) -> None:
        for cursor, expected in self._cursors:
            with cursor:
                assert [row for batch in cursor for row in batch.to_rows()] == expected
        self._cursors = []

    # -- comparison ------------------------------------------------------------------------------

    def compare(self) -> None:
        """Read from the store and compare with the model."""
        draw = self._draws.below
        store, model = self._replica.store, self._model
        assert store.schema == model.schema
        self._scan(None)
        self._look_up(None)
        if draw(2):
            assert store.checksum() == model.checksum()
        if self._cursors and draw(4) == 0:
            self._close_cursors()
        if not self._history:
            return
        at = self._floor + draw(self._now - self._floor + 20)
        self._scan(at)
        self._look_up(at)
        if draw(2):
            assert store.checksum(at) == model.checksum(at)
        if draw(2):
            self._diff(self._floor + draw(at - self._floor + 1), at)
        if self._floor and draw(4) == 0:
            with pytest.raises(TooOld):
                self._replica.rows(self._floor - 1)

    def _scan(self, at: int | None) -> None:
        draws, schema = self._draws, self._model.schema
        columns = tuple(draws.some(schema.layout.ids)) or None if draws.below(2) else None
        predicates = (draws.predicate(schema),) if draws.below(2) else ()
        backwards = draws.below(2) == 0
        limit = draws.below(12) if draws.below(2) else None
        order = Order.KEY_DESCENDING if backwards else Order.KEY
        spec = ScanSpec(columns=columns, predicates=predicates, order=order, limit=limit)
        expected = self._model.rows(at, columns, predicates)
        found = list(self._paged(spec, at))
        assert found == (expected[::-1] if backwards else expected)[:limit], (at, spec)

    def _paged(self, spec: ScanSpec, at: int | None) -> Iterator[Row]:
        """Yield the rows of a scan, which sometimes continues from a token."""
        with self._replica.store.scan(spec, at) as cursor:
            if self._draws.below(4):
                yield from (row for batch in cursor for row in batch.to_rows())
                return
            batch = cursor.next_batch(1 + self._draws.below(4))
            token = cursor.resume_token
        if batch is not None:
            yield from batch.to_rows()
            limit = None if spec.limit is None else spec.limit - len(batch)
            yield from self._paged(msgspec.structs.replace(spec, after=token, limit=limit), at)

    def _look_up(self, at: int | None) -> None:
        written = dict.fromkeys(key for _, rows in self._model.history for key in rows)
        by_key = self._model.by_key(at)
        check_lookups(self._replica, by_key, [*written, b"", b"\0" * 30], at)
        start = self._draws.some([*written])[:1]
        check_short_scans(self._replica, by_key, at, starts=[*start, b""], limits=[1 + self._draws.below(10)])

    def _diff(self, after: int, until: int) -> None:
        model, schema = self._model, self._model.schema
        before, now = model.by_key(after), model.by_key(until)
        changed: dict[bytes, Any] = {}
        deleted: set[bytes] = set()
        for batch in self._replica.store.diff(after, until, ScanSpec()):
            changed.update(zip(encode_keys(schema, batch.changed), batch.changed.to_rows(), strict=True))
            deleted.update(encode_keys(schema, batch.deleted))
        assert deleted == before.keys() - now.keys(), (after, until)
        assert all(now.get(key) == row for key, row in changed.items()), (after, until)
        assert {key for key, row in now.items() if before.get(key) != row} <= changed.keys(), (after, until)

    def _note(self, step: str) -> None:
        self.steps.append(step)
