"""What the stores cost, side by side, each driven directly: ``python -m tests.unit.store_lmdb.figures --help``.

Every round does all the work with a fresh store of each engine, in turn, so that what else the machine does meanwhile
falls on all of them. Printed are median, least and most of the rounds. Entries are built beforehand; what is timed is
the call of the engine. Files are real; nothing here is a test, and no test asserts a time."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from stelae.machine.files import RealFiles
from stelae.rows.keys import encode_key
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.ids import ZERO, OpId
from stelae.spi.payload import WritePayload
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import ApplyEntry, Edit, TabletStore
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import payload
from stelae.testing.conformance.store_model import Op
from stelae_store_columnar import ColumnarStore
from stelae_store_lmdb import LmdbStore
from stelae_store_memory import MemoryStore

SCHEMA = schema_from_plain(
    {
        "columns": [
            {"name": "id", "type": "int64"},
            {"name": "quantity", "type": "int32"},
            {"name": "price", "type": "double"},
            {"name": "name", "type": "string"},
            {"name": "city", "type": "string"},
            {"name": "note", "type": "string", "nullable": True},
            {"name": "open", "type": "bool"},
            {"name": "at", "type": "timestamp"},
        ],
        "key": ["id"],
    }
)
ENGINES: tuple[type[TabletStore], ...] = (LmdbStore, ColumnarStore, MemoryStore)
LOAD_ROWS = 4096  #: Of one entry.
READS = 300


def row(number: int) -> tuple[Any, ...]:
    """A row of eight columns; its texts differ."""
    note = None if number % 3 == 0 else f"about {number * 7919 % 100_003}"
    return (
        number,
        number % 1000,
        number * 0.25,
        f"name {number}",
        f"city {number % 500}",
        note,
        number % 2 == 0,
        number,
    )


@dataclass
class Work:
    """The entries of one round, the same for every engine."""

    load: list[WritePayload]
    single: list[WritePayload]
    groups: list[WritePayload]
    reads: list[bytes]

    @classmethod
    def drawn(cls, rows: int, seed: int) -> Work:
        """Rows 0, 2, 4 and so on are loaded; updates and reads go to any of them."""
        rng = random.Random(seed)

        def updates(count: int) -> WritePayload:
            drawn = [(2 * int(rng.random() * rows), int(rng.random() * 1000)) for _ in range(count)]
            return payload(SCHEMA, [Op(OpKind.UPDATE, drawn, (1, 2))])

        numbers = range(0, 2 * rows, 2)
        load = [
            payload(SCHEMA, [Op(OpKind.INSERT, [row(n) for n in numbers[at : at + LOAD_ROWS]])])
            for at in range(0, rows, LOAD_ROWS)
        ]
        reads = [encode_key(SCHEMA, (2 * int(rng.random() * rows),)) for _ in range(READS)]
        return cls(load, [updates(1) for _ in range(READS)], [updates(64) for _ in range(READS // 10)], reads)


@dataclass
class Driver:
    """One store on a directory of its own."""

    engine: type[TabletStore]
    directory: str
    index: int = 0
    edit: Edit = field(default_factory=lambda: Edit(manifest=b"", flushed=ZERO))

    def open(self) -> None:
        """Open the store from its last edit."""
        services: Any = SimpleNamespace(files=RealFiles())
        self.store = self.engine.open(
            self.directory, self.edit.manifest, self.edit.flushed, {1: SCHEMA}, self.engine.Config(), services
        )

    def apply(self, change: WritePayload) -> None:
        """Apply one entry; all rows are taken."""
        self.index += 1
        (result,) = self.store.apply([ApplyEntry(OpId(1, self.index), self.index << 12, change)])
        assert not result.faults

    def flush(self) -> None:
        """Flush and commit."""
        self._commit(self.store.flush())

    def compact(self) -> None:
        """Forget all history, and compact until there is nothing left to do."""
        self.store.set_history_floor(self.index << 12)
        for _ in range(10_000):
            edit = self.store.compact()
            if edit is None:
                return
            self._commit(edit)

    def scan(self, **spec: Any) -> int:
        """Scan to the end; return the number of rows."""
        with self.store.scan(ScanSpec(order=Order.KEY, **spec)) as cursor:
            return sum(map(len, cursor))

    def read(self, key: bytes) -> None:
        """Read one row."""
        assert self.scan(key_from=key, key_until=key + b"\0", limit=1) == 1

    @property
    def disk_bytes(self) -> int:
        """What the files take on the disk."""
        return sum(os.stat(path).st_blocks * 512 for path in Path(self.directory).rglob("*"))

    def _commit(self, edit: Edit | None) -> None:
        if edit is not None:
            self.edit = edit
            self.store.commit(edit)


def round_of(driver: Driver, work: Work, rows: int, clock: Callable[[], float]) -> dict[str, float]:
    """Do all the work once; figures by name, of time on a clock in seconds."""
    found: dict[str, float] = {}

    def timed(name: str, count: int, call: Callable[[], object]) -> None:
        begun = clock()
        call()
        found[name] = (clock() - begun) / count * 1e6

    def each(call: Callable[[Any], None], given: list[Any]) -> Callable[[], None]:
        return lambda: [call(one) for one in given] and None

    driver.open()
    timed("load, us per row", rows, each(driver.apply, work.load))
    timed("flush of the load, us per row", rows, driver.flush)
    found["disk after the load, bytes per row"] = driver.disk_bytes / rows
    timed("point read, us", READS, each(driver.read, work.reads))
    timed("update of one row, us", len(work.single), each(driver.apply, work.single))
    timed("update of 64 rows in one entry, us", len(work.groups), each(driver.apply, work.groups))
    timed("point read beside updates in memory, us", READS, each(driver.read, work.reads))
    timed("flush of the updates, ms", 1000, driver.flush)
    timed("point read of what was updated and flushed, us", READS, each(driver.read, work.reads))
    timed("full scan, us per row", rows, driver.scan)
    timed("scan of two columns, us per row", rows, lambda: driver.scan(columns=(1, 2)))
    timed("compaction of all history, ms", 1000, driver.compact)
    found["disk after compaction, bytes per row"] = driver.disk_bytes / rows
    timed("full scan after compaction, us per row", rows, driver.scan)
    driver.store.close()
    if "durable_flush" in driver.engine.capabilities:
        timed("start after a clean stop, ms", 1000, driver.open)
        driver.store.close()
    return found


def main() -> None:
    """Run the rounds and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.unit.store_lmdb.figures", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="processor time of this process, for a machine that is busy")
    parser.add_argument("--json", action="store_true", help="print all figures of all rounds")
    given = parser.parse_args()
    work = Work.drawn(given.rows, given.seed)
    clock = time.process_time if given.cpu else time.perf_counter
    figures: dict[str, dict[str, list[float]]] = {}
    for number in range(given.rounds):
        for engine in ENGINES:
            print(f"round {number + 1}, {engine.name}", file=sys.stderr)
            directory = tempfile.mkdtemp(prefix="store-figures-")
            try:
                for name, value in round_of(Driver(engine, f"{directory}/t"), work, given.rows, clock).items():
                    figures.setdefault(name, {}).setdefault(engine.name, []).append(value)
            finally:
                shutil.rmtree(directory)
    if given.json:
        print(json.dumps({"rows": given.rows, "rounds": given.rounds, "seed": given.seed, "figures": figures}))
        return
    print(f"{given.rows} rows, {given.rounds} rounds, seed {given.seed}, load {os.getloadavg()[0]:.1f}", end="; ")
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}\n")
    names = [engine.name for engine in ENGINES]
    print("| | " + " | ".join(f"`{name}`" for name in names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for name, by_engine in figures.items():
        cells = [_cell(by_engine.get(engine, [])) for engine in names]
        print(f"| {name} | " + " | ".join(cells) + " |")


def _cell(values: list[float]) -> str:
    if not values or max(values) == 0:
        return "-"
    return f"{median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


if __name__ == "__main__":
    main()
