"""Tables in memory behind the data source, for tests without a cluster and without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from stelae.client import Table
from stelae.client.loop_thread import LoopThread
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.schema import Schema
from stelae_spark_sink import table_access
from tests.unit.client.tablets import MemoryTable

MASTERS = "127.0.0.1:1"

MadeTable = Callable[..., Table]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test alone in which the data source stores contacts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/stelae-spark"


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    """The thread of the client's event loop."""
    made = LoopThread()
    yield made
    made.close()


@pytest.fixture
def make_table(loop_thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> MadeTable:
    """Returns a function that makes a table in memory, which the data source finds by its name.

    It has three buckets of the first key column, or the partitioning that is given; ``{}``: one tablet."""

    def make(
        name: str,
        columns: Sequence[Mapping[str, Any]],
        key: Sequence[str],
        *,
        partition: Mapping[str, Any] | None = None,
    ) -> Table:
        schema = schema_from_plain({"columns": columns, "key": key})
        table = Table(loop_thread, loop_thread.run(_made(name, schema, partition)))
        monkeypatch.setitem(table_access._tables, (((MASTERS,), "none"), name), table)
        return table

    return make


async def _made(name: str, schema: Schema, partition: Mapping[str, Any] | None) -> Any:
    key = schema.key_layout.columns[0].name
    hashed = {"hash": [{"columns": [key], "buckets": 3}]}
    return MemoryTable(schema, hashed if partition is None else partition, name).table
