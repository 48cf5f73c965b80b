"""The logical checksum of a tablet's rows, equal for every engine that holds the same rows.

Each row is hashed to 128 bits over the msgpack form of its plain values in column order, and the
hashes are added modulo 2**128: the order in which an engine visits rows does not matter, and
adding a row twice shows."""

from collections.abc import Iterable
from typing import Any

import mmh3
import msgspec


class LogicalChecksum:
    """Sum over rows. Feed every visible row once, with all columns of the schema, in its order."""

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
        """Return 32 hexadecimal digits and the number of rows: ``<sum>-<rows>``."""
        return f"{self._sum % (1 << 128):032x}-{self.rows}"


_ENCODER = msgspec.msgpack.Encoder()
