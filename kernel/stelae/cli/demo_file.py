"""Reader of a file of the user as the data source of the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stelae.client.column_types import stored_type
from stelae.local.demo_source import DemoSource
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch

ROWS_MIN = 1000
"""Least number of rows. A smaller load would end before the killed nodes are back."""

TABLE_NAME_LENGTH_MAX = 80


class BadSource(CallerError, code="BAD_SOURCE"):
    """The input file cannot be loaded."""


def from_file(path: Path, key: Sequence[str]) -> DemoSource:
    """Read a whole CSV file (with a header) or Parquet file.

    Args:
        path: the file. Its ending tells the format.
        key: the names of the columns that identify a row.

    Raises:
        BadSource: the file is missing, cannot be read, has another format or is empty; the key is missing from the
            file, has nulls or is not unique; the type of a column cannot be stored; there are too few rows.
    """
    table = _read(path)
    columns = [_column(field, field.name in key) for field in table.schema]
    _check_key(path, [column["name"] for column in columns], key)
    if not table.num_rows:
        raise BadSource(f"{path} has no rows; the demo needs {ROWS_MIN} or more")
    rows = _rows(path, table, columns, key)
    source = DemoSource(name=path.name, table=_table_name(path), columns=columns, key=tuple(key), rows=rows)
    _check_key_values(path, source)
    if len(rows) < ROWS_MIN:
        fact = f"{path} has {len(rows)} rows, too few to kill nodes during the load"
        raise BadSource(f"{fact}; the demo needs {ROWS_MIN} or more")
    return source


def _table_name(path: Path) -> str:
    """Return the name of the table: the name of the file, as far as it is valid for a table."""
    printable = "".join(character for character in path.stem if character.isprintable())
    return printable[:TABLE_NAME_LENGTH_MAX].strip() or "rows"


def _rows(path: Path, table: Any, columns: Sequence[Mapping[str, Any]], key: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows as plain values of the stored types."""
    import pyarrow as pa

    layout = schema_from_plain({"columns": list(columns), "key": list(key)}).layout
    arrays = []
    for column, stored in zip(table.columns, layout.columns, strict=True):
        try:
            arrays.append(column.cast(stored.data_type.arrow()).combine_chunks())
        except pa.ArrowException as error:
            raise BadSource(f"column {stored.name!r} of {path} cannot be stored as {stored.type}: {error}") from error
    return RowBatch.from_arrays(layout, arrays).to_rows()


def _read(path: Path) -> Any:
    import pyarrow as pa

    try:
        if path.suffix.lower() == ".csv":
            from pyarrow import csv

            return csv.read_csv(path)
        if path.suffix.lower() in (".parquet", ".pq"):
            from pyarrow import parquet

            return parquet.read_table(path)
    except FileNotFoundError as error:
        raise BadSource(f"{path}: there is no such file") from error
    except (OSError, pa.ArrowException) as error:
        raise BadSource(f"cannot read {path}: {error}") from error
    raise BadSource(f"cannot tell the format of {path.name!r}; --input takes a .csv or .parquet file")


def _column(field: Any, in_key: bool) -> Mapping[str, Any]:
    stored = stored_type(field.type)
    if stored is None:
        raise BadSource(
            f"column {field.name!r} has type {field.type}, which no column type can store; remove it from the file"
        )
    return {"name": field.name, "type": stored, "nullable": not in_key}


def _check_key(path: Path, names: list[str], key: Sequence[str]) -> None:
    missing = [name for name in key if name not in names]
    if missing or not key:
        fact = f"no column {', '.join(missing)} in {path}" if missing else "--input needs --key"
        raise BadSource(f"{fact}; pass --key with one or more of its columns, separated by commas: {', '.join(names)}")


def _check_key_values(path: Path, source: DemoSource) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for number, found in enumerate(source.keys(), start=1):
        if None in found:
            raise BadSource(f"row {number} of {path} has a null in the key {', '.join(source.key)}")
        if found in seen:
            raise BadSource(
                f"rows {seen[found]} and {number} of {path} have the same key {found}; "
                "choose --key columns that identify a row"
            )
        seen[found] = number
