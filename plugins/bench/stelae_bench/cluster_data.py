"""The data sets of bulk loads, as Arrow tables: ``lineitem`` of TPC-H, and the eight columns of the single-row writes.

TPC-H tables come from ``tpchgen-cli``, an optional program. Its files stay in a cache folder, with the scale in the
name. A file appears there complete or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId
from stelae_bench.rows import COLUMNS, KEY, POOL_ROWS, RowSource

GENERATOR = "tpchgen-cli"
GENERATE_TIMEOUT_S = 1800
BATCH_ROWS = 65_536
LINEITEM_KEY = ("l_orderkey", "l_linenumber")

_TYPES = {"string_view": "string", "large_string": "string", "date32[day]": "date", "double": "double"}


class LineitemUnavailable(StelaeError):
    """``lineitem`` is not available: ``tpchgen-cli`` is not installed or failed, or the cache cannot be used."""

    code = "BENCH_NO_LINEITEM"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Rows to load, in the order in which they are loaded.

    Attributes:
        tablet_id: the tablet into which they are loaded.
        columns, key: the schema of that tablet.
        rows: a ``pyarrow.Table``.
        scale: the TPC-H scale factor; ``None`` for other data.
    """

    tablet_id: TabletId
    columns: Sequence[Mapping[str, Any]]
    key: Sequence[str]
    rows: Any
    scale: float | None = None


def mixed(count: int, seed: int) -> DataSet:
    """Return ``count`` rows of eight mixed columns. Keys count up from 0; the same seed gives the same rows."""
    source = RowSource(0, seed)
    names = [column["name"] for column in COLUMNS]
    pool = [source.next() for _ in range(POOL_ROWS)]
    columns = {name: [row[name] for row in pool] for name in names}
    arrow = {"timestamp": pa.timestamp("us")}
    fields = [pa.field(c["name"], arrow.get(c["type"]) or pa.type_for_alias(c["type"]), c["nullable"]) for c in COLUMNS]
    drawn = pa.table(columns, schema=pa.schema(fields))
    indexes = pa.array([number % POOL_ROWS for number in range(count)], pa.int32())
    rows = drawn.take(indexes).set_column(0, fields[0], pa.array(range(count), pa.int64()))
    return DataSet(tablet_id=TabletId("mixed"), columns=COLUMNS, key=KEY, rows=rows.combine_chunks())


def lineitem(scale: float, cache: Path, rows_max: int) -> DataSet:
    """Return the first ``rows_max`` rows of ``lineitem`` at a scale. Generates the file if the cache has none.

    Raises:
        LineitemUnavailable: the file cannot be generated or read.
    """
    path = cache / f"lineitem-{scale:g}.parquet"
    if not path.is_file():
        _generate(scale, path)
    try:
        file = parquet.ParquetFile(path)
        fields = [pa.field(one.name, _plain(one.type), nullable=False) for one in file.schema_arrow]
        batches = list(islice(file.iter_batches(batch_size=BATCH_ROWS), -(-rows_max // BATCH_ROWS)))
        rows = pa.Table.from_batches(batches, file.schema_arrow).slice(0, rows_max).cast(pa.schema(fields))
    except (pa.ArrowException, OSError) as error:
        raise LineitemUnavailable(f"{path} cannot be read: {error}; remove it, and it is generated again") from error
    columns = [{"name": one.name, "type": _stored_as(one.type), "nullable": False} for one in fields]
    return DataSet(
        tablet_id=TabletId("lineitem"), columns=columns, key=LINEITEM_KEY, rows=rows.combine_chunks(), scale=scale
    )


def default_cache() -> Path:
    """Return the folder of generated tables if the user names none."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stelae" / "tpch"


def _generate(scale: float, path: Path) -> None:
    beside = Path(sys.executable).parent / GENERATOR
    program = str(beside) if beside.is_file() else shutil.which(GENERATOR)
    if program is None:
        raise LineitemUnavailable(
            f"{GENERATOR} is not installed, and {path} does not exist; install it with: pip install 'stelae[bench]'"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="making-", dir=path.parent) as folder:
            command = [program, "parquet", "--scale-factor", f"{scale:g}", "--tables", "lineitem"]
            command += ["--output-dir", folder]
            done = subprocess.run(command, capture_output=True, text=True, timeout=GENERATE_TIMEOUT_S)
            if done.returncode != 0:
                stderr = done.stderr.strip()[-300:]
                raise LineitemUnavailable(f"{GENERATOR} failed with exit code {done.returncode}: {stderr}")
            os.replace(Path(folder) / "lineitem.parquet", path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LineitemUnavailable(f"{path} cannot be generated: {error}; choose another folder with --cache") from error


def _plain(kind: Any) -> Any:
    return pa.string() if _stored_as(kind) == "string" else kind


def _stored_as(kind: Any) -> str:
    """Return the column type for an Arrow type."""
    text = str(kind)
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _TYPES.get(text, text)
