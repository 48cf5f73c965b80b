"""Checks the option ``columns`` against the columns that Spark asks a reader for.

Spark does not ask a source for its columns if the user gives a schema, or a view has a list of columns. So a reader has
to find that the option says something else."""

from __future__ import annotations

from collections.abc import Container

from pyspark.sql.types import StructType

from stelae.client.read_options import column_ids
from stelae.spi.schema import Schema
from stelae_spark_sink.options import COLUMNS, BadOption, SourceOptions


def check_columns(options: SourceOptions, schema: Schema, asked: StructType, added: Container[str] = ()) -> None:
    """Check that the option ``columns``, if it is given, and Spark name the same columns in the same order.

    Args:
        options: of the source.
        schema: of the table.
        asked: the columns that Spark reads.
        added: names of the columns that a change feed adds. These, and those of the key, may be asked for besides.

    Raises:
        SchemaMismatch: the table has no such column.
        BadOption: the columns differ.
    """
    names = options.get(COLUMNS)
    if names is None:
        return
    own = [name for name in names if name not in added]
    if own:
        column_ids(schema, own)
    besides = {column.name for column in schema.key_layout.columns} if added else set()
    found = [name for name in asked.names if name not in added and (name in own or name not in besides)]
    if found != own:
        raise BadOption(
            f"option 'columns' is {','.join(names)}, and the schema has {','.join(asked.names)}: leave out 'columns', "
            "because .schema(...) and the list of columns of a view choose the columns"
        )
