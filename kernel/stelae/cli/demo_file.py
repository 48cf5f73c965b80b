"""A file of the user's as what the demo loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stelae.client.column_types import stored_type
from stelae.local.sources import DemoSource
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import CallerError
from stelae.spi.rows import RowBatch

ROWS_MIN = 1000
"""Of fewer rows nothing would be left to write before what was killed is back."""

TABLE_NAME_LENGTH_MAX = 80


class BadSource(CallerError, code="BAD_SOURCE"):
    """An input file that cannot be loaded."""


def from_file(path: Path, key: Sequence[str]) -> DemoSource:
    """Rows of a CSV (with a header line) or Parquet file, read whole.

    Args:
        path: the file; its ending says which kind it is.
        key: names of the columns that identify a row.

    Raises:
        BadSource: the file is missing, unreadable, of another kind or empty; the key is missing
            from it, has nulls or is not unique; a column's type cannot be stored; there are too few rows.
    """
    table = _read(path)
    columns = [_column(field, field.name in key) for field in table.schema]
    _check_key(path, [column["name"] for column in columns], key)
    if not table.num_rows:
        raise BadSource(f"{path} holds no rows; the demo needs some to load")
    rows = _rows(path, table, columns, key)
    source = DemoSource(name=path.name, table=_table_name(path), columns=columns, key=tuple(key), rows=rows)
    _check_key_values(path, source)
    if len(rows) < ROWS_MIN:
        fact = f"{path} holds {len(rows)} rows, too few for the kills to lie within the load"
        raise BadSource(f"{fact}; the demo needs {ROWS_MIN} or more")
    return source


def _table_name(path: Path) -> str:
    """What the file's table is called: as the file, as far as a table can be."""
    printable = "".join(character for character in path.stem if character.isprintable())
    return printable[:TABLE_NAME_LENGTH_MAX].strip() or "rows"


def _rows(path: Path, table: Any, columns: Sequence[Mapping[str, Any]], key: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows as plain values of the types in which they are stored."""
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
        raise BadSource(f"there is no file {path}") from error
    except (OSError, pa.ArrowException) as error:
        raise BadSource(f"{path} cannot be read: {error}") from error
    raise BadSource(f"{path} ends in {path.suffix!r}; --input takes .csv or .parquet")


def _column(field: Any, in_key: bool) -> Mapping[str, Any]:
    stored = stored_type(field.type)
    if stored is None:
        raise BadSource(f"column {field.name!r} has type {field.type}, which is not stored; leave it out of the file")
    return {"name": field.name, "type": stored, "nullable": not in_key}


def _check_key(path: Path, names: list[str], key: Sequence[str]) -> None:
    missing = [name for name in key if name not in names]
    if missing or not key:
        wanted = ", ".join(missing) or "nothing"
        raise BadSource(
            f"--key names {wanted}, but {path} has the columns {', '.join(names)}; "
            "name one or more of them, separated by commas"
        )


def _check_key_values(path: Path, source: DemoSource) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for number, found in enumerate(source.keys(), start=1):
        if None in found:
            raise BadSource(f"row {number} of {path} has no value in its key {source.key}")
        if found in seen:
            raise BadSource(
                f"rows {seen[found]} and {number} of {path} have the same key {found}; "
                "choose --key columns that identify a row"
            )
        seen[found] = number
