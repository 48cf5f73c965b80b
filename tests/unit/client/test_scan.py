"""Scans: streams with back-pressure, merges by key, limits, and tokens that carry a scan elsewhere."""

from __future__ import annotations

import asyncio
import operator
import pickle
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.client import AsyncTable, ScanToken
from stelae.client.arguments import BadArgument
from stelae.client.filters import BadFilter, predicates
from stelae.client.page_streams import PAGES_AHEAD
from stelae.client.tokens import BadToken
from stelae.protocol.tablet_messages import IN_VALUES_MAX
from stelae.rows.keys import encode_key
from stelae.spi.errors import CallerError, SchemaMismatch, Unavailable
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Compare, In, IsNull, Prefix
from stelae.spi.schema import Layout, Schema
from tests.unit.client.tablets import PAGE_ROWS, SCHEMA, MemoryTable, one_column

HASHED = {"hash": [{"columns": ["sensor"], "buckets": 3}]}
ROWS = [{"sensor": n % 5, "minute": n, "celsius": float(n), "note": None} for n in range(60)]
BY_KEY = sorted(ROWS, key=lambda row: (row["sensor"], row["minute"]))


def on_rows(work: Callable[[MemoryTable], Awaitable[Any]], partition: Any = HASHED) -> Any:
    """Carry out ``work`` on a table that holds ``ROWS``."""

    async def carried_out() -> Any:
        memory = MemoryTable(partition=partition)
        await memory.table.insert(ROWS)
        return await work(memory)

    return asyncio.run(carried_out())


async def listed(batches: Any) -> list[dict[str, Any]]:
    return [row async for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(("order", "expected"), [("key", BY_KEY), ("key_descending", BY_KEY[::-1])])
@pytest.mark.parametrize("partition", [None, HASHED])
def test_rows_come_in_key_order_when_that_is_asked_for(order: str, expected: Any, partition: Any) -> None:
    on_rows(lambda memory: same(memory.table.scan(order=order), expected), partition)


async def same(scan: Any, expected: Any) -> None:
    assert await scan.to_pylist() == expected


def test_a_merge_without_key_columns_leaves_them_out_again() -> None:
    expected = [{"celsius": row["celsius"]} for row in BY_KEY]
    on_rows(lambda memory: same(memory.table.scan(["celsius"], order="key"), expected))


@pytest.mark.parametrize("limit", [0, 1, PAGE_ROWS, 10, 60, 1000])
@pytest.mark.parametrize("order", ["any", "key"])
def test_a_limit_holds_for_the_scan_as_a_whole(limit: int, order: str) -> None:
    async def work(memory: MemoryTable) -> None:
        found = await memory.table.scan(limit=limit, order=order).to_pylist()
        assert len(found) == min(limit, 60)
        assert order == "any" or found == BY_KEY[:limit]
        assert await memory.table.scan(limit=limit).count() == min(limit, 60)

    on_rows(work)


@pytest.mark.parametrize("limit", [None, 0, 1, 10, 59, 60, 1000])
@pytest.mark.parametrize("partition", [None, HASHED])
def test_rows_are_counted_without_being_decoded(
    limit: int | None, partition: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page was decoded, and its rows were thrown away."""
    decoded: list[int] = []
    original = RowBatch.from_ipc

    def from_ipc(layout: Layout, data: bytes, **options: bool) -> RowBatch:
        rows = original(layout, data, **options)
        decoded.append(len(rows))
        return rows

    async def work(memory: MemoryTable) -> None:
        before, after = memory.table.now(), await changed(memory)
        monkeypatch.setattr(RowBatch, "from_ipc", from_ipc)
        where = [("celsius", ">=", 20)]
        counts = [
            await memory.table.scan(limit=limit).count(),
            await memory.table.scan(order="key_descending", limit=limit).count(),
            await memory.table.scan(["note"], where, limit=limit).count(),
            await memory.table.diff(before, after, limit=limit).count(),
        ]
        assert counts == [min(all_rows, 1000 if limit is None else limit) for all_rows in (59, 59, 41, 2)]
        assert decoded == [] and len(asyncio.all_tasks()) == 1
        assert len(await memory.table.scan().to_pylist()) == sum(decoded) == 59

    on_rows(work, partition)


async def changed(memory: MemoryTable) -> int:
    """Update a row and delete another one; return the time of that."""
    await memory.table.update({"sensor": 3, "minute": 3, "celsius": 30.0})
    await memory.table.delete((4, 4))
    return memory.table.now()


def test_start_and_end_take_keys_and_their_first_columns() -> None:
    async def work(memory: MemoryTable) -> None:
        scan = memory.table.scan(start=(1, 11), end=3, order="key")
        expected = [r for r in BY_KEY if (r["sensor"], r["minute"]) >= (1, 11) and r["sensor"] < 3]
        assert await scan.to_pylist() == expected

    on_rows(work)


def test_a_filter_on_the_hash_columns_asks_one_tablet_alone() -> None:
    async def work(memory: MemoryTable) -> None:
        for tablet in memory.tablets:
            tablet.pages.clear()
        found = await memory.table.scan(where=[("sensor", "=", 2), ("celsius", ">", 20)]).to_pylist()
        assert sorted(r["minute"] for r in found) == [n for n in range(21, 60) if n % 5 == 2]
        assert sum(bool(tablet.pages) for tablet in memory.tablets) == 1

    on_rows(work)


def test_a_slow_reader_makes_no_tablet_read_far_ahead() -> None:
    async def work(memory: MemoryTable) -> None:
        (tablet,) = memory.tablets
        tablet.pages.clear()
        batches = memory.table.scan().batches()
        await anext(batches)
        for _ in range(200):
            await asyncio.sleep(0)
        # One taken, a queue full, one that waits for room in it.
        assert len(tablet.pages) <= PAGES_AHEAD + 2 < 60 // PAGE_ROWS
        await batches.aclose()
        assert len(asyncio.all_tasks()) == 1

    on_rows(work, None)


def test_all_pages_of_a_tablet_are_of_one_snapshot() -> None:
    async def work(memory: MemoryTable) -> None:
        batches = memory.table.scan().batches()
        first = await anext(batches)
        await memory.table.delete([(row["sensor"], row["minute"]) for row in ROWS])
        assert len(first) + sum([len(batch) async for batch in batches]) == 60

    on_rows(work, None)


def test_a_scan_can_be_carried_out_again() -> None:
    async def work(memory: MemoryTable) -> None:
        scan = memory.table.scan(order="key", limit=7)
        assert await scan.to_pylist() == await scan.to_pylist() == BY_KEY[:7]

    on_rows(work)


def test_an_empty_table_and_an_empty_selection_have_their_columns() -> None:
    async def work(memory: MemoryTable) -> None:
        for where in [("sensor", "=", 77), ("sensor", "in", [])]:
            found = await memory.table.scan(["note", "sensor"], where).to_arrow()
            assert found.num_rows == 0 and found.column_names == ["note", "sensor"]

    on_rows(work)


def test_pandas_and_polars_get_the_rows() -> None:
    async def work(memory: MemoryTable) -> None:
        scan = memory.table.scan(["sensor", "celsius"], order="key")
        expected = [r["celsius"] for r in BY_KEY]
        assert (await scan.to_pandas())["celsius"].tolist() == expected
        assert (await scan.to_polars())["celsius"].to_list() == expected

    on_rows(work)


# -- tokens ----------------------------------------------------------------------------------------


def test_tokens_of_a_scan_return_its_rows_wherever_they_are_carried_out() -> None:
    async def work(memory: MemoryTable) -> None:
        tokens = await memory.table.scan(where=("celsius", "<", 50)).tokens()
        assert len(tokens) == 3
        again = [pickle.loads(pickle.dumps(token)) for token in tokens]
        assert again == tokens == [ScanToken.from_bytes(token.to_bytes()) for token in tokens]
        found = [row for token in again for row in await memory.table.open(token).to_pylist()]
        assert sorted(r["minute"] for r in found) == list(range(50))

    on_rows(work)


@pytest.mark.parametrize("order", ["any", "key", "key_descending"])
@pytest.mark.parametrize("partition", [None, HASHED])
@pytest.mark.parametrize("limit", [None, 40])
def test_what_is_left_of_a_scan_goes_on_from_its_token_at_the_same_snapshot(
    order: str, partition: Any, limit: int | None
) -> None:
    async def work(memory: MemoryTable) -> None:
        scan = memory.table.scan(order=order, limit=limit, at=memory.table.now())
        whole = await scan.to_pylist()
        for taken in (0, 1, 2, 5, 7):
            batches = scan.batches()
            found = [row for _ in range(taken) for row in (await anext(batches)).to_pylist()]
            await batches.aclose()
            token = (
                scan.token() if taken else await scan.tokens() and memory.table.scan(order=order, limit=limit).token()
            )
            assert token is not None
            await memory.table.upsert({"sensor": 1, "minute": 1, "celsius": 99.0})
            found += await memory.table.open(ScanToken.from_bytes(token.to_bytes())).to_pylist()
            if taken and order != "any":
                assert found == whole
            assert len(found) == len(whole)
            assert len({(r["sensor"], r["minute"]) for r in found}) == len(found)

    on_rows(work, partition)


@pytest.mark.parametrize("order", ["any", "key"])
def test_the_rest_of_a_scan_without_a_time_is_of_the_time_that_its_first_pages_were(order: str) -> None:
    async def work(memory: MemoryTable) -> None:
        scan = memory.table.scan(order=order)
        batches = scan.batches()
        found = len(await anext(batches))
        await batches.aclose()
        token = scan.token()
        assert token is not None
        # Tablets of which no page was taken have no time yet.
        begun = [part for part in token.parts if part.at is not None]
        await memory.table.delete([(row["sensor"], row["minute"]) for row in ROWS])
        rest = [msgspec.structs.replace(token, parts=(part,)) for part in begun]
        found += sum([await memory.table.open(one).count() for one in rest])
        held = [
            count
            for tablet, count in zip(memory.tablets, before, strict=True)
            if tablet.tablet_id in {part.tablet_id for part in begun}
        ]
        assert found == sum(held) > PAGE_ROWS

    before = on_rows(counted)
    on_rows(work)


async def counted(memory: MemoryTable) -> list[int]:
    return memory.held_rows()


@pytest.mark.parametrize("order", ["any", "key"])
@pytest.mark.parametrize("limit", [None, 11])
@pytest.mark.parametrize("taken", [1, 2, 3])
def test_a_batch_that_is_put_back_belongs_to_the_rest_of_a_scan(order: str, limit: int | None, taken: int) -> None:
    async def work(memory: MemoryTable) -> None:
        scan = memory.table.scan(order=order, limit=limit)
        batches, seen = scan.batches(), 0
        for _ in range(taken - 1):
            seen += len(await anext(batches))
        assert len(await anext(batches)) > 0
        await batches.aclose()
        scan.put_back()
        token = scan.token()
        assert token is not None
        rest = await memory.table.open(token).to_pylist()
        assert seen + len(rest) == (limit or len(ROWS))

    on_rows(work)


def test_a_scan_that_is_through_has_no_token_left() -> None:
    async def work(memory: MemoryTable) -> None:
        for order in ("any", "key"):
            for limit in (None, 5, 0):
                scan = memory.table.scan(order=order, limit=limit)
                await scan.to_arrow()
                assert scan.token() is None

    on_rows(work)


def test_a_token_of_another_table_is_refused() -> None:
    async def work(memory: MemoryTable) -> None:
        (token,) = await MemoryTable(name="others").table.scan().tokens()
        with pytest.raises(BadToken, match="of table 'others', this is 'readings'"):
            memory.table.open(token)
        renamed = msgspec.structs.replace(token, table="readings")
        with pytest.raises(BadToken, match="another table of the name 'readings': it has tablet 'others-0'"):
            memory.table.open(renamed)
        (token,) = await MemoryTable(one_column("value", "string")).table.scan().tokens()
        with pytest.raises(BadToken, match="it has another key"):
            memory.table.open(token)
        with pytest.raises(BadToken, match="not bytes"):
            memory.table.open(b"x")  # type: ignore[arg-type]

    on_rows(work)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_token_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(BadToken):
        ScanToken.from_bytes(data)


async def a_token(memory: MemoryTable) -> ScanToken:
    where, at = [("minute", ">", 3)], memory.table.now()
    return (await memory.table.scan(["sensor", "note"], where, order="key", start=1, limit=15, at=at).tokens())[0]


def test_a_token_with_one_flipped_bit_or_cut_short_is_none() -> None:
    """Many a flip left something that could be read: another filter, limit or bound, and so other rows."""

    async def work(memory: MemoryTable) -> None:
        token = await a_token(memory)
        data = token.to_bytes()
        for place in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[place // 8] ^= 1 << place % 8
            with pytest.raises(BadToken, match="not a scan token"):
                ScanToken.from_bytes(bytes(flipped))
        for count in range(len(data)):
            with pytest.raises(BadToken, match="not a scan token"):
                ScanToken.from_bytes(data[:count])
        assert ScanToken.from_bytes(memoryview(data)) == ScanToken.from_bytes(bytearray(data)) == token

    on_rows(work)


def test_a_token_that_someone_made_up_is_the_callers_mistake_not_damage() -> None:
    async def work(memory: MemoryTable) -> None:
        payload = (await a_token(memory)).to_bytes()[4:]
        for place in range(8 * len(payload)):
            flipped = bytearray(payload)
            flipped[place // 8] ^= 1 << place % 8
            sealed = crc32(flipped).to_bytes(4, "big") + flipped
            with suppress(CallerError):
                await memory.table.open(ScanToken.from_bytes(sealed)).to_pylist()

    on_rows(work)


def without_celsius(version: int) -> Schema:
    columns = tuple(c for c in SCHEMA.columns if c.name != "celsius")
    return Schema(version, columns, SCHEMA.key)


def test_a_scan_of_a_column_that_was_dropped_is_refused_and_others_go_on() -> None:
    async def work(memory: MemoryTable) -> None:
        (tablet,) = memory.tablets
        tablet.change_schema(without_celsius(2))
        with pytest.raises(SchemaMismatch):
            await memory.table.scan().to_arrow()
        assert await memory.table.scan(["sensor", "note"]).count() == 60

    on_rows(work, None)


def test_a_token_that_reads_a_dropped_column_names_it() -> None:
    async def work() -> None:
        memory = MemoryTable(without_celsius(2))
        for scan in (MemoryTable().table.scan(), MemoryTable().table.scan(["note"], ("celsius", ">", 1))):
            (token,) = await scan.tokens()
            with pytest.raises(SchemaMismatch, match="column 'celsius' was dropped from the table; it has: sensor"):
                memory.table.open(token)
        (token,) = await MemoryTable().table.scan(["note"]).tokens()
        assert await memory.table.open(token).to_pylist() == []

    asyncio.run(work())


# -- filters ---------------------------------------------------------------------------------------


def test_filters_as_people_write_them() -> None:
    assert predicates(SCHEMA, [("celsius", ">", 20), ("sensor", "IN", {1})]) == (Compare(3, ">", 20.0), In(1, (1,)))
    assert predicates(SCHEMA, ("note", "is  NULL")) == (IsNull(4),)
    assert predicates(SCHEMA, [("note", "is not null")]) == (IsNull(4, negated=True),)
    assert predicates(SCHEMA, ["note", "starts with", "ab"]) == (Prefix(4, "ab"),)
    assert predicates(SCHEMA, ("sensor", "==", 1)) == (Compare(1, "=", 1),)
    assert predicates(SCHEMA, None) == predicates(SCHEMA, []) == ()


@pytest.mark.parametrize(
    ("where", "fact"),
    [
        ("sensor = 1", "not the text"),
        (("sensr", "=", 1), "no column 'sensr'; .* did you mean 'sensor'"),
        (("sensor", "~", 1), "unknown operation '~' in a filter on 'sensor'; known: =, !="),
        (("sensor", "=", "one"), "in a filter, column 'sensor': expected int32, got str 'one'"),
        (("sensor", "=", None), "expected int32, got null"),
        (("sensor", "in", [1, "x"]), "expected int32, got str 'x'"),
        (("sensor", "in", 5), "takes a list of values, not int"),
        (("sensor", "in", range(IN_VALUES_MAX + 1)), f"at most {IN_VALUES_MAX}"),
        (("sensor", "starts with", 1), "needs a string or binary column"),
        (("sensor", "="), "needs a value"),
        ([("sensor", "=", 1, 2)], "a filter is"),
        ([5], "a filter is"),
    ],
)
def test_a_filter_that_cannot_be_read_says_what_was_expected(where: Any, fact: str) -> None:
    with pytest.raises(BadFilter, match=fact):
        predicates(SCHEMA, where)


# -- tokens of parts of a tablet -------------------------------------------------------------------


@pytest.mark.parametrize("order", ["any", "key", "key_descending"])
@pytest.mark.parametrize("bounds", [{}, {"start": (1, 20), "end": (4, 30)}, {"start": (4, 30), "end": (1, 20)}])
def test_tokens_of_parts_of_tablets_read_each_row_once(order: str, bounds: dict[str, Any]) -> None:
    async def work(memory: MemoryTable) -> None:
        for tablet in memory.tablets:
            tablet.splits = [encode_key(SCHEMA, key) for key in ((1, 25), (1, 26), (3, 0))]
        described = memory.table.scan(order=order, at=memory.clock.now(), **bounds)
        tokens = await described.tokens(target_bytes=1 << 20)
        assert len(tokens) == (3 if bounds.get("start") == (4, 30) else 12)
        assert len({token.to_bytes() for token in tokens}) == len(tokens)
        found = [row for token in tokens for row in await memory.table.open(token).to_pylist()]
        key = operator.itemgetter("sensor", "minute")
        assert sorted(found, key=key) == sorted(await described.to_pylist(), key=key)

    on_rows(work)


def test_a_token_that_goes_on_behind_a_row_is_not_divided() -> None:
    async def work(memory: MemoryTable) -> None:
        memory.tablets[0].splits = [encode_key(SCHEMA, (2, 0))]
        scan = memory.table.scan(order="key")
        batches = scan.batches()
        await anext(batches)
        rest = scan.token()
        await batches.aclose()
        assert rest is not None
        (token,) = await memory.table.open(rest).tokens(target_bytes=1 << 20)
        assert token == rest

    on_rows(work, None)


def test_parts_of_less_than_a_mebibyte_are_refused_and_a_tablet_that_cannot_tell_is_an_error() -> None:
    async def work(memory: MemoryTable) -> None:
        with pytest.raises(BadArgument, match="target_bytes must be a whole number from 1048576"):
            await memory.table.scan().tokens(target_bytes=1000)
        memory.tablets[1].error = Unavailable("no replica answered")
        with pytest.raises(Unavailable, match="no replica answered"):
            await memory.table.scan().tokens(target_bytes=1 << 20)

    on_rows(work)


def test_the_latest_time_shows_what_was_acknowledged_whatever_this_machines_clock_says() -> None:
    async def work(memory: MemoryTable) -> None:
        table = AsyncTable(memory.table._location, memory.tablets, ["127.0.0.1:1"], lambda: 1)
        assert table.now() == 1
        at = await table.latest()
        asked = [len(tablet.pages) for tablet in memory.tablets]
        assert await table.latest(tablets=[memory.tablets[1].tablet_id]) > at
        assert [len(tablet.pages) - before for tablet, before in zip(memory.tablets, asked, strict=True)] == [0, 1, 0]
        await memory.table.upsert({"sensor": 0, "minute": 0, "celsius": 99.0})
        assert await table.scan(at=at, order="key").to_pylist() == BY_KEY
        memory.tablets[2].error = Unavailable("no leader answered")
        with pytest.raises(Unavailable, match="no leader answered"):
            await table.latest()

    on_rows(work)
