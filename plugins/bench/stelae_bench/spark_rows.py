"""The rows of ``stelae bench spark``: eight mixed columns, which Spark generates from their key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "id"
PARTITIONS = 4
"""Number of tablets of a table, and of partitions of every pass."""

BATCH_ROWS = 65_536
"""Rows of a batch of the source that does nothing: as many as a page of a scan has."""

EXPRESSIONS: Sequence[str] = (
    "id",
    "cast(pmod(xxhash64(id), 10000) as int) device",
    "pmod(xxhash64(id, 1), 100000) / 1000.0D reading",
    "pmod(id, 10) <> 0 valid",
    "element_at(array('degC', 'hPa', 'm/s', 'percent'), cast(pmod(xxhash64(id, 2), 4) as int) + 1) unit",
    "if(pmod(id, 4) = 0, null, concat('weathered stele ', cast(pmod(xxhash64(id, 3), 100000) as string))) note",
    "cast(lpad(cast(xxhash64(id, 4) as string), 24, '0') as binary) payload",
    "timestamp_micros(1700000000000000 + pmod(xxhash64(id, 5), 1000000000000)) at",
)

CHECKSUM = ("count(*)", "bit_xor(xxhash64(*))")
"""Expressions of Spark that have equal values for equal rows in any order."""


def generated(session: SparkSession, rows: int) -> DataFrame:
    """Return a frame of ``rows`` rows, which Spark generates whenever it is used."""
    return session.range(0, rows, 1, PARTITIONS).selectExpr(*EXPRESSIONS)


def checksum_of(frame: DataFrame) -> tuple[int, int]:
    """Return the number of rows of a frame, and a checksum of their values."""
    found = frame.selectExpr(*CHECKSUM).first()
    assert found is not None, "an aggregate has one row"
    return int(found[0]), int(found[1] or 0)


def write_file(rows: Any, path: Path) -> None:
    """Write a ``pyarrow.Table`` into a file that the source that does nothing maps into memory."""
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks(), max_chunksize=BATCH_ROWS)
