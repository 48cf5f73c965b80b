"""Checks on the driver, before any task runs, whether a table can store the rows of a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from stelae.client import Table
from stelae.client.locations import NoSuchTable
from stelae.client.row_input import KEY_ONLY
from stelae.spi.errors import CallerError
from stelae_spark_sink.options import IGNORE_NULL, OPERATION, BadOption, SourceOptions
from stelae_spark_sink.spark_types import column_types

CREATE_TABLE = "stelae.spark.create_table_from(frame, masters, name, key=[...])"
CREATE_REJECTS_TABLE = "stelae.spark.create_rejects_table(masters, name)"


@contextmanager
def created_with(function: str) -> Iterator[None]:
    """Let the error for a table that does not exist name the function that creates one."""
    try:
        yield
    except NoSuchTable as error:
        error.args = (f"{error}; create one with {function}",)
        raise


def check_columns(table: Table, options: SourceOptions, given: StructType) -> None:
    """Check the columns of a DataFrame against those of a table.

    Raises:
        BadOption: the option ``ignoreNull`` does not apply to the operation.
        UnsupportedSparkType: a column has a type that no table stores; the message names a workaround.
        SchemaMismatch: a column is unknown, missing, or of another kind of type than that of the table.
    """
    kind = options[OPERATION]
    if options[IGNORE_NULL] and kind in KEY_ONLY:
        name = kind.name.lower()
        raise BadOption(f"option {IGNORE_NULL.name!r} does not apply to {name}, which takes key columns: leave it out")
    column_types(given)
    empty = to_arrow_schema(given, timezone="UTC").empty_table()
    try:
        table.write(kind, empty)
    except CallerError as error:
        columns = ", ".join(f"{name} {type_name}" for name, type_name in table.columns.items())
        fact = f"{kind.name.lower()} into table {table.name!r}: {error}"
        raise type(error)(f"{fact}; the table has: {columns}; key {', '.join(table.key)}") from error
