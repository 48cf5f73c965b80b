"""Loading a file into a table: bad rows are told, the rest stands, and a crash anywhere loses and doubles nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from stelae.client.failures import FAILURES_MAX
from stelae.spi.errors import DeadlineExceeded
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind
from stelae_transfer import loading
from stelae_transfer.journal import Journal, Position, Subject
from stelae_transfer.loading import ImportStopped, Loader
from stelae_transfer.rejects import Rejects
from stelae_transfer.row_chunks import BadRow, RowChunk
from tests.unit.client.tablets import PAGE_ROWS, MemoryTable, one_column

SUBJECT = Subject(
    input_bytes=1,
    input_digest="d",
    table="readings",
    members=("a",),
    mode="",
    columns=("id",),
    reading=(),
    late_members="",
)
SCHEMA = one_column("value", "int64")


class Crash(Exception):
    """The process ends here."""


class Place:
    """A table, and the files of an import into it."""

    def __init__(self, folder: Path, kind: OpKind = OpKind.UPSERT, schema: Schema = SCHEMA) -> None:
        self.memory = MemoryTable(schema, name="readings")
        self.kind = kind
        self.journal = folder / "journal"
        self.bad = folder / "bad.jsonl"
        self.bad_rows_max = 1_000_000
        self.crash_at = -1
        self.steps = 0

    def step(self) -> None:
        """Something durable is about to happen, or has just happened."""
        self.steps += 1
        if self.steps == self.crash_at:
            raise Crash

    async def load(self, chunks: Callable[[int], Iterator[RowChunk]]) -> Position:
        journal = _Watched.begun(self)
        rejects = Rejects(self.bad, journal.position.bad_bytes)
        try:
            loader = Loader(
                _Table(self),  # type: ignore[arg-type]
                self.kind,
                journal,
                rejects,
                bad_rows_max=self.bad_rows_max,
                timeout_s=5,
                clock_s=lambda: 0.0,
            )
            return await loader.run(chunks(journal.position.acknowledged))
        finally:
            rejects.close()
            Journal.close(journal, done=False)

    def rows(self) -> list[dict[str, Any]]:
        async def read() -> list[dict[str, Any]]:
            return await self.memory.table.scan(order="key").to_pylist()

        return asyncio.run(read())

    def told(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.bad.read_bytes().splitlines()] if self.bad.exists() else []


class _Watched(Journal):
    """A journal that crashes before or after it becomes durable."""

    place: Place

    @classmethod
    def begun(cls, place: Place) -> _Watched:
        found = Journal.open(place.journal, SUBJECT)
        watched = cls(place.journal, found._file, found.position)
        watched.place = place
        return watched

    def record(self, position: Position) -> None:
        if self.place.steps >= self.place.crash_at > 0:
            raise Crash
        self.place.step()
        super().record(position)
        self.place.step()


class _Table:
    """A table whose writes may be the last thing that happens."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place.memory.table, name)

    async def write(self, kind: OpKind, rows: Any, **options: Any) -> Any:
        self._place.step()
        result = await self._place.memory.table.write(kind, rows, **options)
        self._place.step()
        return result


def batch(ids: Sequence[Any], values: Sequence[Any]) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "value": pa.array(values, pa.int64())})


def chunks_of(
    rows: Sequence[tuple[Any, Any]], size: int, bad: Sequence[int] = ()
) -> Callable[[int], Iterator[RowChunk]]:
    """Chunks of rows by number from 1; those of ``bad`` could not be read."""

    def chunks(after: int) -> Iterator[RowChunk]:
        for start in range(after, len(rows), size):
            numbers = [n + 1 for n in range(start, min(start + size, len(rows)))]
            good = [n for n in numbers if n not in bad]
            told = [BadRow(n, "RAGGED", "ragged", None) for n in numbers if n in bad]
            listed = [rows[n - 1] for n in good]
            yield RowChunk(batch([r[0] for r in listed], [r[1] for r in listed]), good, told, numbers[-1])

    return chunks


ROWS = [(n % 40, n) for n in range(60)]
"""Keys come again behind others, with other values."""

LAST = {key: max(value for k, value in ROWS if k == key) for key, _ in ROWS}
FIRST = {key: min(value for k, value in ROWS if k == key) for key, _ in ROWS}
EXPECTED = {OpKind.UPSERT: LAST, OpKind.INSERT: FIRST, OpKind.INSERT_IGNORE: FIRST}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reservations that are renewed within a few rows."""
    monkeypatch.setattr(loading, "RESERVED_ROWS", 15)
    monkeypatch.setattr(loading, "RECORD_EVERY_S", 0.0)


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_crash_before_or_after_any_step_loses_and_doubles_nothing(tmp_path: Path, kind: OpKind) -> None:
    whole = Place(tmp_path, kind)
    chunks = chunks_of(ROWS, 7, bad=(3, 50))
    asyncio.run(whole.load(chunks))
    expected = {k: v for k, v in EXPECTED[kind].items() if v not in (2, 49)}
    # Rows 3 and 50 are bad; keys 2 and 9 have their other row.
    for key, value in ((2, 42), (9, 9)):
        expected[key] = value
    told = [(row["row"], row["code"]) for row in whole.told()]
    assert {row["id"]: row["value"] for row in whole.rows()} == expected
    assert whole.steps > 20
    for at in range(1, whole.steps + 1):
        folder = tmp_path / f"{kind}-{at}"
        folder.mkdir()
        place = Place(folder, kind)
        place.crash_at = at
        with pytest.raises(Crash):
            asyncio.run(place.load(chunks))
        place.crash_at = -1
        position = asyncio.run(place.load(chunks))
        assert {row["id"]: row["value"] for row in place.rows()} == expected, at
        assert [(row["row"], row["code"]) for row in place.told()] == told, at
        assert position.acknowledged == 60 and position.bad == len(told), at
        assert position.written == 60 - len(told), at


@pytest.mark.parametrize("kind", [OpKind.DELETE, OpKind.UPDATE, OpKind.DELETE_IGNORE, OpKind.UPDATE_IGNORE])
def test_a_crash_anywhere_changes_nothing_for_updates_and_deletes(tmp_path: Path, kind: OpKind) -> None:
    rows = [(n, n) for n in range(40)]
    deletes = kind in (OpKind.DELETE, OpKind.DELETE_IGNORE)

    def chunks(after: int) -> Iterator[RowChunk]:
        for chunk in chunks_of(rows, 9)(after):
            yield chunk._replace(rows=chunk.rows.select(["id"])) if deletes else chunk

    def run(at: int) -> tuple[Place, Position]:
        folder = tmp_path / f"{kind}-{at}"
        folder.mkdir()
        place = Place(folder, kind)
        asyncio.run(place.memory.table.insert([(n, -1) for n in range(0, 60, 2)]))
        place.crash_at = at
        if at > 0:
            with pytest.raises(Crash):
                asyncio.run(place.load(chunks))
            place.crash_at = -1
        return place, asyncio.run(place.load(chunks))

    whole, _ = run(0)
    for at in range(1, whole.steps + 1, 2):
        place, position = run(at)
        assert place.rows() == whole.rows(), at
        assert position.acknowledged == 40, at
        assert {row["row"] for row in place.told()} >= ({row["row"] for row in whole.told()} if not deletes else set())


def test_a_repeated_insert_tells_own_rows_from_those_of_others(tmp_path: Path) -> None:
    place = Place(tmp_path, OpKind.INSERT)
    asyncio.run(place.memory.table.insert([(5, 999)]))
    chunks = chunks_of([(n, n) for n in range(10)], 10)
    place.crash_at = 4  # The rows are written, and the journal says no more than that they may be.
    with pytest.raises(Crash):
        asyncio.run(place.load(chunks))
    assert len(place.rows()) == 10
    place.crash_at = -1
    position = asyncio.run(place.load(chunks))
    assert (position.written, position.bad) == (9, 1)
    assert [(row["row"], row["code"], row["values"]) for row in place.told()] == [
        (6, "ALREADY_PRESENT", {"id": 5, "value": 5})
    ]


@pytest.mark.parametrize("kind", [OpKind.UPSERT, OpKind.INSERT])
def test_every_bad_row_of_a_chunk_is_told_even_when_more_failed_than_a_write_lists(
    tmp_path: Path, kind: OpKind
) -> None:
    count = 2 * FAILURES_MAX + 500
    place = Place(tmp_path, kind)
    rows = [(None if n % 2 else n, n) for n in range(count)]
    chunk = RowChunk(batch([r[0] for r in rows], [r[1] for r in rows]), range(1, count + 1), (), count)
    position = asyncio.run(place.load(lambda _: iter([chunk])))
    assert (position.written, position.bad) == (count - count // 2, count // 2)
    told = place.told()
    assert [row["row"] for row in told] == [n + 1 for n in range(1, count, 2)]
    assert {row["reason"] for row in told} == {"column 'id': expected int64, got null"}
    assert len(place.rows()) == count - count // 2


def test_a_batch_with_a_hostile_layout_is_bad_and_the_others_stand(tmp_path: Path) -> None:
    place = Place(tmp_path, schema=one_column("value", "string"))
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little", signed=True) for n in (0, -5, 2, 3)))
    hostile = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    ids = pa.array([3, 4, 5], pa.int64())
    chunks = [
        RowChunk(pa.record_batch({"id": [1, 2], "value": ["a", "b"]}), [1, 2], (), 2),
        RowChunk(pa.RecordBatch.from_arrays([ids, hostile], names=["id", "value"]), [3, 4, 5], (), 5),
        RowChunk(pa.record_batch({"id": [6], "value": ["c"]}), [6], (), 6),
    ]
    position = asyncio.run(place.load(lambda _: iter(chunks)))
    assert [row["id"] for row in place.rows()] == [1, 2, 6]
    assert (position.written, position.bad) == (3, 3)
    (told,) = place.told()
    assert (told["row"], told["rows"], told["code"]) == (3, 3, "BAD_ARROW")


def test_of_two_rows_with_one_key_in_a_chunk_the_later_one_stands(tmp_path: Path) -> None:
    place = Place(tmp_path)
    asyncio.run(place.load(chunks_of([(1, 10), (2, 20), (1, 11)], 3)))
    assert place.rows() == [{"id": 1, "value": 11}, {"id": 2, "value": 20}]


def test_rows_that_nobody_answers_for_are_not_acknowledged(tmp_path: Path) -> None:
    place = Place(tmp_path)
    chunks = chunks_of([(n, n) for n in range(20)], 10)
    place.memory.tablets[0].error = DeadlineExceeded("no answer")
    with pytest.raises(ImportStopped, match="stopped at row 1: UNKNOWN_OUTCOME"):
        asyncio.run(place.load(chunks))
    assert place.told() == []
    place.memory.tablets[0].error = None
    assert asyncio.run(place.load(chunks)).written == 20
    assert len(place.rows()) == 20


def test_too_many_bad_rows_stop_an_import_that_can_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.bad_rows_max = 2
    chunks = chunks_of([(n, n) for n in range(20)], 5, bad=(1, 2, 3, 18))
    with pytest.raises(ImportStopped, match="3 bad rows, more than --bad-rows-max 2"):
        asyncio.run(place.load(chunks))
    assert [row["row"] for row in place.told()] == [1, 2, 3]
    place.bad_rows_max = 4
    assert asyncio.run(place.load(chunks)).bad == 4
    assert [row["row"] for row in place.told()] == [1, 2, 3, 18]
    assert len(place.rows()) == 16


def test_a_file_that_breaks_off_leaves_what_came_before(tmp_path: Path) -> None:
    place = Place(tmp_path)

    def broken(after: int) -> Iterator[RowChunk]:
        yield from [*chunks_of([(n, n) for n in range(20)], 5)(after)][:2]
        raise ValueError("the disk is gone")

    with pytest.raises(ValueError, match="the disk is gone"):
        asyncio.run(place.load(broken))
    position = asyncio.run(place.load(chunks_of([(n, n) for n in range(20)], 5)))
    assert position.written == 20 and len(place.rows()) == 20


def test_rows_that_an_interrupted_insert_has_written_are_read_back_together(tmp_path: Path) -> None:
    place, rows = Place(tmp_path, OpKind.INSERT), [(n, n) for n in range(3000)]

    async def resumed() -> Position:
        await place.memory.table.insert(rows)
        await place.memory.table.update({"id": 7, "value": 8})
        journal = _Watched.begun(place)
        journal.record(Position(reserved=len(rows)))
        journal.close(done=False)
        (tablet,) = place.memory.tablets
        tablet.pages.clear()
        return await place.load(chunks_of(rows, len(rows)))

    position = asyncio.run(resumed())
    assert (position.written, position.bad) == (len(rows) - 1, 1) and place.told()[0]["row"] == 8
    # One scan of as many pages as it takes, and not a read for each row.
    assert len(place.memory.tablets[0].pages) <= len(rows) // PAGE_ROWS + 2
