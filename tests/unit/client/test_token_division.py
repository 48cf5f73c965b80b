"""Tokens of small tablets are put together, so that a table of many tablets is not as many tasks."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from stelae.client.token_division import TABLET_BYTES_MIN, TOKENS_MIN, SizedToken, combined
from stelae.client.tokens import ScanToken, TokenPart
from stelae.spi.ids import TabletId
from stelae.spi.scan import ScanSpec
from tests.unit.client.tablets import MemoryTable, ids, one_column

MIB = 1 << 20
TARGET = 128 * MIB


def token(number: int, **spec: Any) -> ScanToken:
    return ScanToken(("127.0.0.1:1",), "t", b"", ScanSpec(**spec), (TokenPart(TabletId(f"t-{number}"), 7),), at=7)


def tablets(tokens: list[ScanToken]) -> list[list[str]]:
    return [[part.tablet_id for part in one.parts or ()] for one in tokens]


def test_ten_thousand_empty_tablets_are_some_hundred_tokens_that_read_each_tablet_once() -> None:
    found = combined([SizedToken(token(n), 0) for n in range(10_000)], TARGET)
    assert len(found) == -(-10_000 // (TARGET // TABLET_BYTES_MIN)) == 313
    assert [name for one in tablets(found) for name in one] == [f"t-{n}" for n in range(10_000)]
    assert {one.at for one in found} == {7}


@pytest.mark.parametrize("count", [1, 3, TOKENS_MIN, TOKENS_MIN + 1, 100])
def test_a_table_of_few_tablets_is_read_by_as_many_tasks(count: int) -> None:
    found = combined([SizedToken(token(n), 0) for n in range(count)], TARGET)
    assert len(found) == count


@pytest.mark.parametrize("seed", range(5))
def test_no_token_reads_more_than_the_target_unless_it_is_one_tablet(seed: int) -> None:
    rng = random.Random(seed)
    sizes = {f"t-{n}": rng.choice([0, 3, 30, 90, 200]) * MIB for n in range(5_000)}
    found = combined([SizedToken(token(n), sizes[f"t-{n}"]) for n in range(5_000)], TARGET)
    for names in tablets(found):
        total = sum(max(sizes[name], TABLET_BYTES_MIN) for name in names)
        assert total <= TARGET or len(names) == 1
    assert [name for names in tablets(found) for name in names] == [*sizes]


def test_parts_of_a_divided_tablet_are_never_put_together() -> None:
    def parts(number: int) -> list[SizedToken]:
        return [
            SizedToken(token(number, key_until=b"m")),
            SizedToken(token(number, key_from=b"m")),
            *(SizedToken(token(n), 0) for n in range(number + 1, number + 100)),
        ]

    found = combined([one for n in range(0, 10_000, 100) for one in parts(n)], TARGET)
    bounded = [one for one in found if one.spec != ScanSpec()]
    assert len(bounded) == 200 and all(len(one.parts or ()) == 1 for one in bounded)
    names = [name for one in tablets(found) for name in one]
    assert len(names) == 10_000 + 100 and len({*names}) == 10_000


def test_a_token_of_many_tablets_reads_their_rows_once() -> None:
    async def work() -> None:
        memory = MemoryTable(one_column("value", "int64"), {"hash": [{"columns": ["id"], "buckets": 200}]})
        await memory.table.insert([(n, n) for n in range(500)])
        scan = memory.table.scan(at=memory.clock.now())
        tokens = await scan.tokens(target_bytes=TARGET)
        assert TOKENS_MIN <= len(tokens) < 100
        found = []
        for one in tokens:
            again = ScanToken.from_bytes(one.to_bytes())
            assert msgspec.structs.asdict(again) == msgspec.structs.asdict(one)
            found += ids(await memory.table.open(again).to_pylist())
        assert sorted(found) == [*range(500)]

    asyncio.run(work())
