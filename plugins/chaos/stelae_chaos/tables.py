"""The tables of a run: their names, columns and partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stelae.client import AsyncClient, AsyncTable
from stelae.protocol.master_errors import NoTable, TableExists
from stelae.spi.errors import StelaeError, Unavailable

CREATE_TIMEOUT_S: Final = 120.0
BUCKETS: Final = 2

WORKLOADS: Final[Mapping[str, Mapping[str, Any]]] = {
    "registers": {
        "columns": {"id": "int64", "text": "string"},
        "key": ["id"],
        "partition": {"hash": [{"columns": ["id"], "buckets": BUCKETS}]},
    },
    "appends": {
        "columns": {"client": "int64", "number": "int64", "text": "string"},
        "key": ["client", "number"],
        "partition": {"hash": [{"columns": ["client", "number"], "buckets": BUCKETS}]},
    },
    "counters": {
        "columns": {"counter": "int64", "client": "int64", "number": "int64"},
        "key": ["counter", "client", "number"],
        "partition": {"hash": [{"columns": ["counter"], "buckets": BUCKETS}]},
    },
    "sums": {
        "columns": {"group": "int64", "account": "int64", "batch": "string", "balance": "int64"},
        "key": ["group", "account"],
        "partition": None,
    },
}
"""What ``AsyncClient.create_table`` takes for each table. The rows of a group are in one tablet, and so are the rows of
a counter."""


class TablesLeft(Unavailable, code="TABLES_LEFT"):
    """The tables of a run could be neither created nor dropped again."""


class TableNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the tables in the cluster."""

    registers: str
    appends: str
    counters: str
    sums: str

    @classmethod
    def of_run(cls, run: str) -> TableNames:
        """Return the names of a run, which other runs on the same cluster do not have."""
        return cls(**{name: f"chaos-{run}-{name}" for name in WORKLOADS})

    @property
    def pattern(self) -> str:
        """What fits the names of a run, for messages."""
        return f"{self.registers.removesuffix('registers')}*"

    def all(self) -> tuple[str, ...]:
        """Return all names, in the order of ``WORKLOADS``."""
        return tuple(getattr(self, name) for name in WORKLOADS)


class ChaosTables:
    """The opened tables of a client."""

    def __init__(self, registers: AsyncTable, appends: AsyncTable, counters: AsyncTable, sums: AsyncTable) -> None:
        self.registers = registers
        self.appends = appends
        self.counters = counters
        self.sums = sums

    @classmethod
    async def open(cls, client: AsyncClient, names: TableNames, timeout_s: float) -> ChaosTables:
        """Open all tables; ``StelaeError``: one cannot be opened in time."""
        return cls(*[await client.table(name, timeout_s=timeout_s) for name in names.all()])


async def create_tables(client: AsyncClient, names: TableNames, replicas: int) -> None:
    """Create the tables; ``StelaeError``: one cannot be created. Then the others are dropped again.

    ``TablesLeft``: that fails, too."""
    asked: list[str] = []
    try:
        for name, described in zip(names.all(), WORKLOADS.values(), strict=True):
            asked.append(name)
            await client.create_table(name, replicas=replicas, timeout_s=CREATE_TIMEOUT_S, **described)
    except StelaeError as error:
        if isinstance(error, TableExists):
            asked.pop()  # It is somebody's. After another error the last one may exist, too: an answer can be lost.
        if left := [name for name in asked if not await _dropped(client, name)]:
            fact = f"{error}. Tables of this run may be left: {', '.join(left)}; drop them with `stelae table drop`"
            raise TablesLeft(fact) from error
        raise


async def _dropped(client: AsyncClient, name: str) -> bool:
    """Drop a table; return false if it may still exist."""
    try:
        await client.drop_table(name, timeout_s=CREATE_TIMEOUT_S)
    except NoTable:
        return True
    except StelaeError:
        return False
    return True


async def drop_tables(client: AsyncClient, names: TableNames) -> None:
    """Drop the tables of a run."""
    for name in names.all():
        await client.drop_table(name, timeout_s=CREATE_TIMEOUT_S)
