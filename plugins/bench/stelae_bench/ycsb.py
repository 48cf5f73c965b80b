"""The YCSB core workloads: draws the next operation and its record.

Source: Cooper et al., "Benchmarking Cloud Serving Systems with YCSB" (2010), and the properties of its core package;
the Zipfian draw is that of Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (1994), with constant
0.99. As in YCSB, a hash spreads popular records over the key space (*scrambled*). In workload D the records that were
inserted last are popular (*latest*). Records have ten fields of 100 bytes. This module reads no clock and does no input
or output; the same seed gives the same operations."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

CONSTANT = 0.99
"""The skew of the Zipfian distribution. The larger it is, the more often the first items are drawn."""

FIELDS = 10
FIELD_BYTES = 100
SCAN_ROWS_MAX = 100

_SCRAMBLED_ITEMS = 10_000_000_000
_SCRAMBLED_ZETA = 26.46902820178302
"""The sum of 1 / i**0.99 over this number of items. Computing it takes minutes."""

_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 1099511628211
_MASK = (1 << 64) - 1


class YcsbOperation(StrEnum):
    """The kind of an operation."""

    READ = "read"
    UPDATE = "update"
    INSERT = "insert"
    SCAN = "scan"
    READ_MODIFY_WRITE = "read_modify_write"


@dataclass(frozen=True, slots=True)
class Workload:
    """One core workload: the shares of its operations, which sum to 1, and whether the latest records are popular."""

    letter: str
    shares: Mapping[YcsbOperation, float]
    latest: bool = False


WORKLOADS: Mapping[str, Workload] = {
    one.letter: one
    for one in (
        Workload("A", {YcsbOperation.READ: 0.5, YcsbOperation.UPDATE: 0.5}),
        Workload("B", {YcsbOperation.READ: 0.95, YcsbOperation.UPDATE: 0.05}),
        Workload("C", {YcsbOperation.READ: 1.0}),
        Workload("D", {YcsbOperation.READ: 0.95, YcsbOperation.INSERT: 0.05}, latest=True),
        Workload("E", {YcsbOperation.SCAN: 0.95, YcsbOperation.INSERT: 0.05}),
        Workload("F", {YcsbOperation.READ: 0.5, YcsbOperation.READ_MODIFY_WRITE: 0.5}),
    )
}


def fnv64(number: int) -> int:
    """Hash a number to 63 bits as YCSB does: FNV-1 with its eight bytes xored first."""
    value = _FNV_OFFSET
    for _ in range(8):
        value = ((value ^ (number & 0xFF)) * _FNV_PRIME) & _MASK
        number >>= 8
    # The original takes the absolute value of a signed number.
    return value if value < 1 << 63 else (1 << 64) - value


def key_of(record: int) -> str:
    """Return the key of the record with a number. It is hashed, so that records are not inserted in key order."""
    return f"user{fnv64(record)}"


class Zipfian:
    """Draws numbers from 0 to ``items - 1``, number ``i`` with the weight ``1 / (i + 1) ** constant``.

    Args:
        rng: the random source.
        items: the number of items. It may grow between draws; the cost is proportional to the growth.
        constant: the skew.
        zeta: the sum of all weights, if it is known; otherwise it is computed.
    """

    def __init__(self, rng: random.Random, items: int, *, constant: float = CONSTANT, zeta: float = 0.0) -> None:
        self._rng = rng
        self._constant = constant
        self._counted = 0
        self._zeta = 0.0
        self._zeta_two = 1 + 0.5**constant
        self._alpha = 1 / (1 - constant)
        if zeta:
            self._counted, self._zeta = items, zeta
        self.grow(items)

    def grow(self, items: int) -> None:
        """Set the number of items, which may not decrease."""
        constant = self._constant
        self._zeta += sum((i + 1) ** -constant for i in range(self._counted, items))
        self._items = self._counted = items
        self._eta = (1 - (2 / items) ** (1 - constant)) / (1 - self._zeta_two / self._zeta) if items > 2 else 0.0

    def draw(self) -> int:
        """Return the next item."""
        chance = self._rng.random()
        share = chance * self._zeta
        if share < 1:
            return 0
        if share < self._zeta_two:
            return min(1, self._items - 1)
        return min(self._items - 1, int(self._items * (self._eta * chance - self._eta + 1) ** self._alpha))


class Population:
    """The records that exist: those with numbers below ``acked``. Further ones may be under way.

    As in YCSB, a record is drawn only after it was acknowledged. Acknowledgements may come in any order."""

    def __init__(self, count: int) -> None:
        self.acked = count
        self._next = count
        self._early: set[int] = set()

    def begin(self) -> int:
        """Return the number of a record to insert."""
        self._next += 1
        return self._next - 1

    def ack(self, record: int) -> None:
        """Note that the insert of a record was acknowledged."""
        self._early.add(record)
        while self.acked in self._early:
            self._early.remove(self.acked)
            self.acked += 1


@dataclass(frozen=True, slots=True)
class YcsbStep:
    """One operation with the number of its record, and the number of rows of a scan."""

    kind: YcsbOperation
    record: int
    rows: int = 0


class Chooser:
    """Draws the operations of one workload on a population that it shares with others.

    Args:
        workload: the workload.
        population: the records; at least one.
        seed: the same seed gives the same operations, if acknowledgements come in the same order.
    """

    def __init__(self, workload: Workload, population: Population, seed: int) -> None:
        self._rng = random.Random(f"ycsb/{seed}/{workload.letter}")
        self._population = population
        self._latest = workload.latest
        self._kinds = [*workload.shares]
        self._weights = [*workload.shares.values()]
        if workload.latest:
            self._zipfian = Zipfian(self._rng, population.acked)
        else:
            self._zipfian = Zipfian(self._rng, _SCRAMBLED_ITEMS, zeta=_SCRAMBLED_ZETA)

    def next(self) -> YcsbStep:
        """Return the next operation. An insert is begun in the population."""
        (kind,) = self._rng.choices(self._kinds, self._weights)
        if kind is YcsbOperation.INSERT:
            return YcsbStep(kind, self._population.begin())
        rows = 1 + int(self._rng.random() * SCAN_ROWS_MAX) if kind is YcsbOperation.SCAN else 0
        return YcsbStep(kind, self._record(), rows)

    def _record(self) -> int:
        count = self._population.acked
        if self._latest:
            self._zipfian.grow(count)
            return count - 1 - self._zipfian.draw()
        return fnv64(self._zipfian.draw()) % count


class Values:
    """Draws the contents of fields from a seed: parts of one long printable text, so that drawing costs little."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"ycsb-values/{seed}")
        letters = bytes(range(ord(" "), ord("~") + 1))
        self._text = bytes(self._rng.choices(letters, k=1 << 16)).decode()

    def field(self) -> str:
        """Return a new value of one field."""
        start = int(self._rng.random() * (len(self._text) - FIELD_BYTES))
        return self._text[start : start + FIELD_BYTES]

    def name(self) -> str:
        """Return the name of a field to update. All are equally likely."""
        return f"field{int(self._rng.random() * FIELDS)}"

    def record(self) -> dict[str, str]:
        """Return all fields of a new record."""
        return {f"field{place}": self.field() for place in range(FIELDS)}
