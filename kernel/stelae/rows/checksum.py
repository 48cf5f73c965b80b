"""The logical checksum of a tablet's rows. It is equal for all engines that hold the same rows.

Each row is hashed to 128 bits: the msgpack form of its plain values in column order. The hashes are added modulo
2**128. So the order in which an engine reads its rows does not matter, and a row that is read twice changes the sum."""

from collections.abc import Iterable
from typing import Any

import mmh3
import msgspec


class LogicalChecksum:
    """The sum over the rows. Add every visible row once, with all columns of the schema, in their order."""

    __slots__ = ("_sum", "rows")

    def __init__(self) -> None:
        self._sum = 0
        self.rows = 0

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows of plain values (see ``RowBatch.to_rows``)."""
        encode = _ENCODER.encode
        for row in rows:
            low, high = mmh3.mmh3_x64_128_utupledigest(encode(row))
            self._sum += low | high << 64
            self.rows += 1

    def hex(self) -> str:
        """Return the checksum as ``<sum>-<rows>``: 32 hexadecimal digits and the number of rows."""
        return f"{self._sum % (1 << 128):032x}-{self.rows}"


_ENCODER = msgspec.msgpack.Encoder()
