"""The passes of ``stelae bench spark``: each reads or writes all rows once, in one of three ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from stelae.client import Client
from stelae_bench.spark_nothing import NAME, Nothing
from stelae_bench.spark_report import Pass
from stelae_bench.spark_rows import KEY, PARTITIONS, checksum_of, write_file
from stelae_spark_sink.functions import create_table_from, read_table, upsert

READ, WRITTEN = "to_read", "to_write"
"""The table that is read, and the one that is written and dropped in each pass that writes."""

HASHED = {"hash": [{"columns": [KEY], "buckets": PARTITIONS}]}


class SparkPasses:
    """Prepares a table and a file with the same rows, and measures passes over them.

    Args:
        session: the session of Spark.
        client: a client of the cluster.
        masters: addresses of the masters.
        folder: an existing folder for the file.
        generated: the rows, which Spark generates.
        rows: their number.
    """

    def __init__(
        self, session: SparkSession, client: Client, masters: str, folder: Path, generated: DataFrame, rows: int
    ) -> None:
        self._session = session
        self._client = client
        self._masters = masters
        self._generated = generated
        self._count = rows
        session.dataSource.register(Nothing)
        create_table_from(generated, masters, READ, key=KEY, partition=HASHED)
        # The columns of the file are as nullable as those of the table, so that Spark does the same with both.
        schema = to_arrow_schema(self._table_frame().schema, timezone="UTC")
        arrow: Any = generated.toArrow()
        self._rows: Any = arrow.cast(schema)
        self._path = folder / "rows.arrow"
        write_file(self._rows, self._path)
        client.table(READ).upsert(self._rows)
        self._passes: dict[Pass, Callable[[], int]] = {
            Pass.READ: lambda: _to_noop(self._table_frame(), rows),
            Pass.READ_NOTHING: lambda: _to_noop(self._file_frame(), rows),
            Pass.READ_CLIENT: self._read_with_client,
            Pass.WRITE: self._write_with_spark,
            Pass.WRITE_NOTHING: self._write_nothing,
            Pass.WRITE_CLIENT: self._write_with_client,
        }

    def compare(self) -> list[str]:
        """Run every pass once without its time, and compare the rows of tables and file; return the problems."""
        expected = checksum_of(self._generated)
        problems = []
        for name, frame in (("table to read", self._table_frame()), ("file", self._file_frame())):
            found = checksum_of(frame)
            if found != expected:
                problems.append(f"the {name} has {found[0]} rows with checksum {found[1]}, expected are {expected}")
        for one in Pass:
            if one is not Pass.WRITE:
                problems += [problem for _, problem in [self.measure(one)] if problem]
        self._create()
        self._write_with_spark()
        found = checksum_of(read_table(self._session, self._masters, WRITTEN))
        self._client.drop_table(WRITTEN)
        if found != expected:
            problems.append(f"Spark has written {found[0]} rows with checksum {found[1]}, expected are {expected}")
        return problems

    def measure(self, one: Pass) -> tuple[float, str]:
        """Measure one pass; return its time in seconds, and its problem or nothing.

        The table of a pass that writes is created before, and its rows are counted and it is dropped afterwards."""
        into_table = one in (Pass.WRITE, Pass.WRITE_CLIENT)
        if into_table:
            self._create()
        began = time.perf_counter()
        rows = self._passes[one]()
        took_s = time.perf_counter() - began
        if into_table:
            rows = self._client.table(WRITTEN).scan([KEY]).count()
            self._client.drop_table(WRITTEN)
        return took_s, "" if rows == self._count else f"{one}: {rows} rows instead of {self._count}"

    # -- reading -----------------------------------------------------------------------------------

    def _table_frame(self) -> DataFrame:
        return read_table(self._session, self._masters, READ)

    def _file_frame(self) -> DataFrame:
        reader = self._session.read.format(NAME).option("path", str(self._path))
        return reader.option("partitions", PARTITIONS).load()

    def _read_with_client(self) -> int:
        return int(self._client.table(READ).scan().to_arrow().num_rows)

    # -- writing -----------------------------------------------------------------------------------

    def _create(self) -> None:
        create_table_from(self._generated, self._masters, WRITTEN, key=KEY, partition=HASHED)

    def _write_with_spark(self) -> int:
        upsert(self._generated, self._masters, WRITTEN)
        return self._count

    def _write_nothing(self) -> int:
        self._generated.write.format(NAME).mode("append").save()
        return self._count

    def _write_with_client(self) -> int:
        return self._client.table(WRITTEN).upsert(self._rows).written


def _to_noop(frame: DataFrame, rows: int) -> int:
    """Read a frame into the sink of Spark that drops all rows. ``compare`` has checked that these are ``rows``."""
    frame.write.format("noop").mode("overwrite").save()
    return rows
