"""The columns of a change feed in Spark, and the checks of the options of a feed. Needs no session and no JVM."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as t

from stelae.client.feed_columns import FEED_COLUMNS, FeedRows
from stelae.client.read_options import column_ids
from stelae.spi.schema import Schema
from stelae_spark_sink.options import (
    BEFORE_IMAGES,
    COLUMNS,
    ENDING_TIMESTAMP,
    FAIL_ON_DROPPED_RANGES,
    MAX_ROWS_PER_TRIGGER,
    READ_CHANGE_FEED,
    STARTING_TIMESTAMP,
    TIMESTAMP_AS_OF,
    WHERE,
    BadOption,
    SourceOptions,
)
from stelae_spark_sink.spark_types import checked_fields, spark_schema

ADDED = tuple(column.name for column in FEED_COLUMNS)
"""Names of the columns that a feed adds to those of the table."""

_OF_FEEDS = (STARTING_TIMESTAMP, ENDING_TIMESTAMP, BEFORE_IMAGES, FAIL_ON_DROPPED_RANGES, MAX_ROWS_PER_TRIGGER)


def is_feed(options: SourceOptions) -> bool:
    """Return whether the options ask for a change feed.

    Raises:
        BadOption: an option of feeds is given without ``readChangeFeed``, or one that feeds do not take with it.
    """
    if options[READ_CHANGE_FEED]:
        if TIMESTAMP_AS_OF in options:
            raise BadOption(
                "a change feed has no option 'timestampAsOf'; use 'startingTimestamp' and 'endingTimestamp'"
            )
        if WHERE in options:
            raise BadOption(
                "a change feed has no option 'where', because a row that matched before and does not match now would "
                "be missing; leave it out, and filter the rows of the feed with where() of the DataFrame"
            )
        return True
    for option in _OF_FEEDS:
        if option in options:
            raise BadOption(
                f"option {option.name!r} is for change feeds; set 'readChangeFeed' to true, or leave it out"
            )
    return False


def feed_schema(schema: Schema, options: SourceOptions) -> t.StructType:
    """Return the columns of the feed of a table, or of those of its columns that ``columns`` has.

    Raises:
        SchemaMismatch: the table has no such column.
    """
    rows = FeedRows(schema, column_ids(schema, _own_columns(schema, options.get(COLUMNS))))
    return spark_schema((*rows.columns, *FEED_COLUMNS))


def _own_columns(schema: Schema, names: Sequence[str] | None) -> Sequence[str] | None:
    """Return the names without those that every feed has. If none is left, they are those of the key."""
    if names is None:
        return None
    return [name for name in names if name not in ADDED] or [column.name for column in schema.key_layout.columns]


def columns_to_read(schema: Schema, asked: t.StructType, table: str) -> list[str]:
    """Return the columns of the table that a feed has to read for a schema of the user. It adds those of the key.

    Raises:
        SchemaMismatch: the feed has no such column, or one of another type.
    """
    rows = FeedRows(schema, schema.layout.ids)
    fields = {column.name: column for column in (*rows.columns, *FEED_COLUMNS)}
    names = checked_fields(fields, asked, table)
    return [name for name in names if name in schema.by_name] or [schema.key_layout.columns[0].name]
