"""Finds the rows of many keys: keys that are close to each other by one scan, and distant keys one by one.

The keys of a tablet are looked up in order. A scan from the first to the last key, limited to a few times as many rows
as there are keys, decides all keys up to its last row. If these are only a small share of the keys, the keys are far
apart, and each of the others is read by itself: further scans would read a large part of the table for a few rows."""

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
"""The most rows that a scan reads for each key."""

DECIDED_MIN = 0.25
"""The share of the keys that a scan must decide. Below it, the remaining keys are read one by one."""

READS_AT_ONCE = 64
"""The most scans that are in flight at the same time."""

Read = Callable[[int, ScanSpec], AsyncScan]
"""Returns a scan of the tablet of a partition."""


class KeyLookup:
    """Finds the rows of keys.

    Args:
        schema: of the table.
        read: makes the scans of tablets.
    """

    def __init__(self, schema: Schema, read: Read) -> None:
        self._schema = schema
        self._read = read
        self._slots = asyncio.Semaphore(READS_AT_ONCE)

    async def find(self, wanted: Mapping[int, set[bytes]]) -> dict[bytes, Record]:
        """Return the rows that exist, by encoded key. ``wanted`` has the encoded keys of each partition."""
        found = await asyncio.gather(*(self._find_in(part, sorted(keys)) for part, keys in wanted.items()))
        return {key: row for rows in found for key, row in rows.items()}

    async def _find_in(self, partition: int, keys: Sequence[bytes]) -> dict[bytes, Record]:
        found: dict[bytes, Record] = {}
        while keys:
            limit = ROWS_FOR_A_KEY * len(keys)
            count, last, rows = await self._scan(partition, keys, limit)
            found |= rows
            if count < limit:
                break
            rest = keys[bisect_right(keys, last) :]
            if len(rest) > (1 - DECIDED_MIN) * len(keys):
                single = await asyncio.gather(*(self._scan(partition, [key], 1) for key in rest))
                return found | {key: row for _, _, one in single for key, row in one.items()}
            keys = rest
        return found

    async def _scan(self, partition: int, keys: Sequence[bytes], limit: int) -> tuple[int, bytes, dict[bytes, Record]]:
        """Scan from the first key to the last; return the number of rows, the key of the last row, and the rows whose
        keys are among ``keys``."""
        layout = self._schema.layout
        spec = ScanSpec(columns=layout.ids, key_from=keys[0], key_until=keys[-1] + b"\0", limit=limit, order=Order.KEY)
        count, last = 0, b""
        found: dict[bytes, Record] = {}
        async with self._slots:
            async for batch in self._read(partition, spec):
                rows = RowBatch(layout, batch)
                read = encode_keys(self._schema, rows)
                count, last = count + len(read), read[-1] if read else last
                matches = [n for n, key in enumerate(read) if _contains(keys, key)]
                records: list[dict[str, Any]] = batch.take(matches).to_pylist() if matches else []
                found |= dict(zip([read[n] for n in matches], records, strict=True))
        return count, last, found


def _contains(keys: Sequence[bytes], key: bytes) -> bool:
    """Return whether sorted keys contain a key."""
    position = bisect_left(keys, key)
    return position < len(keys) and keys[position] == key
