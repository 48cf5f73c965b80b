"""The rows of the benchmark: eight mixed columns, drawn from a seed, with unique keys."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

COLUMNS: tuple[Mapping[str, Any], ...] = (
    {"name": "id", "type": "int64", "nullable": False},
    {"name": "device", "type": "int32", "nullable": False},
    {"name": "reading", "type": "double", "nullable": False},
    {"name": "valid", "type": "bool", "nullable": False},
    {"name": "unit", "type": "string", "nullable": False},
    {"name": "note", "type": "string", "nullable": True},
    {"name": "payload", "type": "binary", "nullable": False},
    {"name": "at", "type": "timestamp", "nullable": False},
)
KEY = ("id",)
NAMES = tuple(column["name"] for column in COLUMNS)

WRITER_SHIFT = 40
"""The bits of a key from this one up are the number of the writer, so that writers never write the same key."""

POOL_ROWS = 4096
"""The number of rows that differ in more than their key."""

_UNITS = ("degC", "hPa", "m/s", "percent")
_WORDS = ("stele", "inscribed", "north", "gate", "second", "harvest", "granary", "weathered")
_EPOCH_US = 1_700_000_000_000_000


class RowSource:
    """Rows of one writer, with keys that count up.

    The columns besides the key come from a pool that is drawn once, so that the time of drawing is not measured.

    Args:
        writer: the number of the writer, from 0.
        seed: the same seed gives the same rows.
    """

    def __init__(self, writer: int, seed: int) -> None:
        rng = random.Random(f"{seed}/{writer}")
        self._pool = [_values(rng) for _ in range(POOL_ROWS)]
        self._next = writer << WRITER_SHIFT
        self._first = self._next

    @property
    def count(self) -> int:
        """The number of rows returned so far."""
        return self._next - self._first

    def next(self) -> dict[str, Any]:
        """Return the next row, by column."""
        key = self._next
        self._next = key + 1
        return dict(zip(NAMES, (key, *self._pool[key % POOL_ROWS]), strict=True))


def _values(rng: random.Random) -> tuple[Any, ...]:
    return (
        int(rng.random() * 10_000),
        rng.random() * 100.0,
        rng.random() < 0.9,
        _UNITS[int(rng.random() * len(_UNITS))],
        None if rng.random() < 0.25 else _words(rng),
        rng.getrandbits(192).to_bytes(24, "little"),
        _EPOCH_US + int(rng.random() * 1e12),
    )


def _words(rng: random.Random) -> str:
    count = 2 + int(rng.random() * 4)
    return " ".join(_WORDS[int(rng.random() * len(_WORDS))] for _ in range(count))
