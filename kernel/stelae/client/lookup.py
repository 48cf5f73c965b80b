"""Rows of many keys: neighbours are read together, and single ones on their own.

Keys of one tablet are gone through in order. A scan from the first to the last of them, of a few times as many rows as
there are keys, answers for all keys up to where it ends. Where that is few of them, the rest lie far apart, and each is
read by itself: scanning on would read a table for the sake of some rows."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stelae.client.scan import AsyncScan, Record
from stelae.rows.keys import encode_keys
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.schema import Schema

ROWS_FOR_A_KEY = 4
"""Rows that a scan may read for each key that is looked for."""

ANSWERED_MIN = 0.25
"""Share of the keys that a scan has to answer for, else the others are read one by one."""

READS_AT_ONCE = 64
"""Reads of single rows that are under way at the same time."""

Read = Callable[[int, ScanSpec], AsyncScan]
"""Describes a scan of one tablet, by its partition."""


class KeyLookup:
    """Finds the rows of keys.

    Args:
        schema: of the table.
        read: reads one tablet.
    """

    def __init__(self, schema: Schema, read: Read) -> None:
        self._schema = schema
        self._read = read
        self._room = asyncio.Semaphore(READS_AT_ONCE)

    async def find(self, wanted: Mapping[int, set[bytes]]) -> dict[bytes, Record]:
        """Return the rows that there are by encoded key; ``wanted`` has the keys of each partition."""
        found = await asyncio.gather(*(self._of_tablet(place, sorted(keys)) for place, keys in wanted.items()))
        return {key: row for rows in found for key, row in rows.items()}

    async def _of_tablet(self, place: int, keys: Sequence[bytes]) -> dict[bytes, Record]:
        found: dict[bytes, Record] = {}
        while keys:
            limit = ROWS_FOR_A_KEY * len(keys)
            count, last, rows = await self._scanned(place, keys, limit)
            found |= rows
            if count < limit:
                break
            rest = keys[bisect_right(keys, last) :]
            if len(rest) > (1 - ANSWERED_MIN) * len(keys):
                alone = await asyncio.gather(*(self._scanned(place, [key], 1) for key in rest))
                return found | {key: row for _, _, one in alone for key, row in one.items()}
            keys = rest
        return found

    async def _scanned(self, place: int, keys: Sequence[bytes], limit: int) -> tuple[int, bytes, dict[bytes, Record]]:
        """Scan from the first key to the last; return the number of rows, the last one's key, and the rows of keys."""
        layout = self._schema.layout
        spec = ScanSpec(columns=layout.ids, key_from=keys[0], key_until=keys[-1] + b"\0", limit=limit, order=Order.KEY)
        count, last = 0, b""
        found: dict[bytes, Record] = {}
        async with self._room:
            async for batch in self._read(place, spec):
                rows = RowBatch(layout, batch)
                met = encode_keys(self._schema, rows)
                count, last = count + len(met), met[-1] if met else last
                mine = [n for n, key in enumerate(met) if _holds(keys, key)]
                kept: list[dict[str, Any]] = batch.take(mine).to_pylist() if mine else []
                found |= dict(zip([met[n] for n in mine], kept, strict=True))
        return count, last, found


def _holds(keys: Sequence[bytes], key: bytes) -> bool:
    place = bisect_left(keys, key)
    return place < len(keys) and keys[place] == key
