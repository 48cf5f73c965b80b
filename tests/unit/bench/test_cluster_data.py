"""The rows that are loaded in bulk, and where TPC-H's come from."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.rows import RowBatch
from stelae_bench import cluster_data
from stelae_bench.cluster_data import DataSet, LineitemUnavailable, default_cache, lineitem, mixed
from stelae_bench.rows import POOL_ROWS, RowSource


def fits(data: DataSet) -> RowBatch:
    """The rows as the tablet's schema has them; raises if they are of other types."""
    schema = schema_from_plain({"columns": data.columns, "key": data.key})
    assert data.rows.schema.types == schema.layout.arrow.types
    (batch,) = data.rows.to_batches()
    return RowBatch.from_arrays(schema.layout, batch.columns)


def cached(folder: Path, scale: str, count: int) -> Path:
    columns = {
        "l_orderkey": pa.array(range(count), pa.int64()),
        "l_linenumber": pa.array([1] * count, pa.int32()),
        "l_tax": pa.array([Decimal("0.02")] * count, pa.decimal128(15, 2)),
        "l_shipdate": pa.array([9000] * count, pa.int32()).cast(pa.date32()),
        "l_comment": pa.array(["carefully"] * count, pa.string_view()),
    }
    path = folder / f"lineitem-{scale}.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def test_mixed_rows_are_those_of_single_row_writes_with_keys_that_count_up() -> None:
    data = mixed(POOL_ROWS + 10, seed=3)
    source = RowSource(0, seed=3)
    assert fits(data).to_rows() == [tuple(source.next().values()) for _ in range(POOL_ROWS + 10)]


def test_lineitem_of_the_cache_is_cut_to_the_rows_wanted_and_fits_its_schema(tmp_path: Path) -> None:
    cached(tmp_path, "0.25", 1000)
    data = lineitem(0.25, tmp_path, 700)
    assert (len(data.rows), data.scale, data.tablet_id) == (700, 0.25, "lineitem")
    assert [column["type"] for column in data.columns] == ["int64", "int32", "decimal(15,2)", "date", "string"]
    assert fits(data).to_rows()[699][0] == 699


def test_without_the_generator_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_data, "GENERATOR", "no-such-program")
    with pytest.raises(LineitemUnavailable, match=r"no-such-program is not installed.*stelae\[bench\]"):
        lineitem(0.01, tmp_path, 10)
    assert list(tmp_path.iterdir()) == []


def generator(folder: Path, body: str) -> Any:
    program = folder / "generator"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return str(program)


def test_a_generator_that_fails_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setattr(cluster_data, "GENERATOR", generator(tmp_path, "echo no space >&2; exit 3"))
    with pytest.raises(LineitemUnavailable, match="exit code 3: no space"):
        lineitem(0.01, cache, 10)
    assert list(cache.iterdir()) == []


def test_what_was_generated_stays_under_the_name_of_its_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, cache = cached(tmp_path, "made", 5), tmp_path / "cache"
    body = f'while [ "$1" != --output-dir ]; do shift; done; mv "{made}" "$2/lineitem.parquet"'
    monkeypatch.setattr(cluster_data, "GENERATOR", generator(tmp_path, body))
    assert len(lineitem(0.01, cache, 10).rows) == 5
    assert [path.name for path in cache.iterdir()] == ["lineitem-0.01.parquet"]
    assert len(lineitem(0.01, cache, 10).rows) == 5, "the second time it is there already"


def test_a_cached_file_that_is_damaged_is_named_with_the_next_step(tmp_path: Path) -> None:
    path = cached(tmp_path, "0.25", 100)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(LineitemUnavailable, match=r"lineitem-0.25.parquet cannot be read: .* remove it"):
        lineitem(0.25, tmp_path, 10)


def test_a_cache_that_is_no_folder_is_named_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(LineitemUnavailable, match=r"cannot be generated: .* --cache"):
        lineitem(0.01, tmp_path / "cache", 10)


def test_the_cache_is_in_the_users_cache_folder_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert default_cache() == Path("/somewhere/cache/stelae/tpch")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache/stelae/tpch"
