"""Blocks are Parquet: the how-to's own examples read them, and come to the rows that the store returns."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stelae.machine.files import RealFiles
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.services import SharedParts
from stelae.spi.write import OpKind
from stelae.testing.conformance.store_harness import HarnessReplica, StoreHarness, delete, upsert
from stelae.testing.conformance.store_model import Op
from stelae_store_columnar import ColumnarStore
from tests.conformance.test_store_columnar import tiny
from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs/howto/read-blocks-with-other-tools.md").read_text()
EXAMPLES = re.findall(r"^## (\w+)\n\n```(?:python|sql)\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
INSTALLED = [(tool, text) for tool, text in EXAMPLES if importlib.util.find_spec(tool.lower())]
READINGS = schema_from_plain(
    {
        "columns": [
            {"name": "sensor", "type": "int64"},
            {"name": "at", "type": "timestamp", "nullable": True},
            {"name": "celsius", "type": "decimal(6,2)", "nullable": True},
            {"name": "note", "type": "string", "nullable": True},
        ],
        "key": ["sensor"],
    }
)


@pytest.fixture
def readings(tmp_path: Path) -> HarnessReplica:
    """A table with rows that were updated, deleted and never flushed again, on the real disk."""
    replica = StoreHarness(ColumnarStore, tiny).replica(READINGS)
    services: Any = SimpleNamespace(files=RealFiles(), shared=SharedParts())
    store = ColumnarStore.open(f"{tmp_path}/readings", b"", replica.flushed, replica.schemas, tiny(), services)
    replica.store = store
    replica.insert(*((n, n * 1000, f"{n}.50", f"n{n}") for n in range(40)))
    replica.flush()
    replica.write(upsert(*((n, None, "-1.25", None) for n in range(0, 40, 3))), delete((5,), (6,)))
    replica.flush()
    replica.write(Op(OpKind.UPDATE, [(7, "warm"), (8, "cold")], (1, 4)))
    replica.flush()
    return replica


def test_every_tool_of_the_page_has_an_example() -> None:
    assert [tool for tool, _ in EXAMPLES] == ["DuckDB", "pandas", "pyarrow"]
    assert "pyarrow" in dict(INSTALLED)


@pytest.mark.parametrize(("tool", "text"), INSTALLED, ids=[tool for tool, _ in INSTALLED])
def test_the_example_comes_to_the_rows_of_the_table(
    tool: str, text: str, readings: HarnessReplica, tmp_path: Path
) -> None:
    text = text.replace("/srv/n1/data", str(tmp_path))
    assert str(tmp_path) in text
    if tool == "DuckDB":
        duckdb: Any = __import__("duckdb")
        table = duckdb.sql(text).arrow()
        found = table.read_all() if hasattr(table, "read_all") else table
    else:
        names: dict[str, Any] = {}
        exec(text, names)
        rows = names["rows"]
        found = rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)
    with readings.store.scan(ScanSpec(order=Order.KEY)) as cursor:
        expected = pa.Table.from_batches([batch.arrow for batch in cursor])
    found = found.select(expected.column_names).cast(expected.schema).sort_by("sensor")
    assert found.to_pylist() == expected.to_pylist()
    assert len(found) == 38


def test_columns_have_the_names_types_and_ids_of_the_table(readings: HarnessReplica, tmp_path: Path) -> None:
    first = sorted(tmp_path.glob("readings/*.parquet"))[0]
    schema = pq.read_schema(first)
    assert schema.names == ["sensor", "at", "celsius", "note", "_stelae_timestamp", "_stelae_deleted", "_stelae_schema"]
    assert schema.types[:4] == READINGS.layout.arrow.types
    assert [schema.field(n).metadata[b"PARQUET:field_id"] for n in range(4)] == [b"1", b"2", b"3", b"4"]
    assert not schema.field("sensor").nullable


def test_a_table_with_columns_of_our_names_keeps_them(tmp_path: Path) -> None:
    columns = [{"name": name, "type": "int8"} for name in ("_stelae_deleted", "a", "a.b")]
    schema = schema_from_plain({"columns": columns, "key": ["_stelae_deleted"]})
    replica = StoreHarness(ColumnarStore, tiny).replica(schema)
    replica.insert((1, 2, 3), (2, 3, 4))
    replica.flush()
    replica.open()
    assert replica.rows() == [(1, 2, 3), (2, 3, 4)]
    assert replica.rows(columns=(2,)) == [(2,), (3,)]
    assert replica.rows(columns=(3,)) == [(3,), (4,)]
    (path,) = (path for path in replica.disk.tree() if path.endswith(".parquet"))
    names = pq.read_schema(pa.BufferReader(replica.disk.tree()[path])).names
    assert names == ["_stelae_deleted", "a", "a.b", "_stelae_timestamp", "_stelae_deleted_", "_stelae_schema"]


def test_decimals_are_stored_as_integers_which_are_read_in_half_the_time(
    readings: HarnessReplica, tmp_path: Path
) -> None:
    blocks = sorted(tmp_path.rglob("*.parquet"))
    columns = [pq.read_metadata(path).row_group(0).column(2) for path in blocks]
    assert {(column.path_in_schema, column.physical_type) for column in columns} == {("celsius", "INT32")}
    assert {pq.read_schema(path).field("celsius").type for path in blocks} == {pa.decimal128(6, 2)}
