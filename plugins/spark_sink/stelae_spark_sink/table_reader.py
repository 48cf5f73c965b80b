"""Reads a table in Spark tasks, all at one time.

Spark keeps the partitions of a reader for as long as the DataFrame or the view exists, and uses them for every query. A
reader therefore does not override ``pushFilters``: the filters of one query would narrow the others (ADR 62)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from stelae.client import Contacts, ScanToken, Table, to_datetime
from stelae.client.counted import counted
from stelae.client.filters import predicates
from stelae.spi.errors import CallerError, TooOld
from stelae_spark_sink.arrow_batches import SparkBatches
from stelae_spark_sink.asked_columns import check_columns
from stelae_spark_sink.history_check import check_history
from stelae_spark_sink.json_filters import to_json, with_values
from stelae_spark_sink.options import (
    TARGET_PARTITION_BYTES,
    TIMEOUT_S,
    TIMESTAMP_AS_OF,
    WHERE,
    BadOption,
    SourceOptions,
)
from stelae_spark_sink.spark_types import checked_fields
from stelae_spark_sink.table_access import contacts_of, scan_of, table_of

SHOWN_COLUMNS_MAX = 20
"""The most columns that the log of the driver names for one read."""

SHOWN_WHERE_LENGTH_MAX = 400
"""The most characters of the filters that the log of the driver shows for one read."""


class TokenPartition(InputPartition):
    """A part of the scan, as the bytes of its token, with the nodes by which its task finds the cluster.

    The reader may be older: Spark sends the one of a stream as it was when the query started."""

    def __init__(self, token: bytes, contacts: Contacts | None = None) -> None:
        self.token = token
        self.contacts = contacts


def check_time(table: Table, at: int, timeout_s: float) -> None:
    """Check on the driver that a table can be read as of a time, before any task fails for it.

    Raises:
        BadOption: the time is below the history floor of a tablet.
        CallerError: it is in the future.
    """
    try:
        check_history(table, at, timeout_s)
    except TooOld as error:
        floor = to_datetime(error.floor).isoformat()
        raise BadOption(
            f"option {TIMESTAMP_AS_OF.name!r} is {to_datetime(at).isoformat()}, and table {table.name!r} keeps its "
            f"history since {floor}; the setting maintenance.history_retention_s of the nodes says how long"
        ) from None


class TableReader(DataSourceReader):
    """Reads a table. The driver plans with it, and sends it to each task.

    Args:
        options: the options of the source.
        asked: the columns that Spark reads, in order, with their types.

    Raises:
        SchemaMismatch: the table has no such columns.
        BadOption: the option ``columns`` names others.
        NoSuchTable, Unavailable: the table does not exist, or no master answered.
    """

    def __init__(self, options: SourceOptions, asked: StructType) -> None:
        table = table_of(options, planning=True)
        self._options = options
        self._asked = asked
        self._schema = table.schema
        self._columns = checked_fields(table.schema.by_name, asked, table.name)
        check_columns(options, table.schema, asked)
        self._where = with_values(table.schema, options[WHERE])
        predicates(table.schema, self._where)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the parts of the scan, all at one time."""
        options, timeout_s = self._options, self._options[TIMEOUT_S]
        table = table_of(options, planning=True)
        at = options.get(TIMESTAMP_AS_OF)
        if at is None:
            at = table.latest(timeout_s=timeout_s)
        else:
            check_time(table, at, timeout_s)
        scan = table.scan(self._columns, self._where, at=at, timeout_s=timeout_s)
        tokens = scan.tokens(target_bytes=options[TARGET_PARTITION_BYTES])
        contacts = contacts_of(options)
        self._report(table.name, at, len(tokens))
        return [TokenPartition(token.to_bytes(), contacts) for token in tokens]

    def _report(self, table: str, at: int, count: int) -> None:
        """Tell the log of the driver what is read. PySpark gives a source no way to show it in ``explain()``."""
        shown = [*self._columns[:SHOWN_COLUMNS_MAX]]
        more = len(self._columns) - len(shown)
        columns = ", ".join([*shown, *([f"and {more} more"] if more else [])])
        where = f", where {to_json(self._where)[:SHOWN_WHERE_LENGTH_MAX]}" if self._where else ""
        plan = f"{counted(count, 'partition')}, columns {columns}{where}"
        print(f"stelae: table {table!r} is read as of {to_datetime(at).isoformat()}: {plan}", file=sys.stderr)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a part as ``pyarrow.RecordBatch`` objects.

        Raises:
            Unavailable: no replica of the tablet served a page in time.
            CallerError: the nodes no longer keep the history of the partition's time.
        """
        if not isinstance(partition, TokenPartition):
            return  # Spark makes one task without a partition when there are no partitions.
        batches = SparkBatches(self._asked)
        token = ScanToken.from_bytes(partition.token)
        try:
            for batch in scan_of(self._options.found_by(partition.contacts), token):
                yield batches.converted(batch)
        except TooOld as error:
            read_at, floor = (to_datetime(time).isoformat() for time in (token.at or 0, error.floor))
            fact = f"table {token.table!r} is read as of {read_at}, but keeps its history since {floor}"
            raise CallerError(f"{fact}; load it again: a DataFrame keeps the time of its first query") from error
