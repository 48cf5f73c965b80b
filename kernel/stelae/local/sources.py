"""What the demo loads: rows, their columns, and their key.

The data set that needs no file is Python's own table of named characters; a CSV or Parquet file of
the user's serves as well."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stelae.spi.errors import CallerError


class BadSource(CallerError):
    """An input file that cannot be loaded."""

    code = "BAD_SOURCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows to load, in the order of their columns.

    Attributes:
        name: what it is, for people.
        columns: ``{"name", "type", "nullable"}`` of each column.
        key: names of the key columns.
        rows: one tuple per row; keys are unique.
    """

    name: str
    columns: Sequence[Mapping[str, Any]]
    key: Sequence[str]
    rows: Sequence[tuple[Any, ...]]

    def key_of(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """The key of a row."""
        return tuple(row[position] for position in self.key_positions)

    @property
    def key_positions(self) -> tuple[int, ...]:
        """Where the key columns stand in a row."""
        names = [column["name"] for column in self.columns]
        return tuple(names.index(name) for name in self.key)


CHARACTER_COLUMNS: tuple[Mapping[str, Any], ...] = (
    {"name": "code_point", "type": "int32", "nullable": False},
    {"name": "name", "type": "string", "nullable": False},
    {"name": "category", "type": "string", "nullable": False},
    {"name": "bidirectional", "type": "string", "nullable": False},
    {"name": "combining", "type": "int16", "nullable": False},
    {"name": "numeric", "type": "double", "nullable": True},
    {"name": "decomposition", "type": "string", "nullable": False},
)


def characters() -> Source:
    """Every named character that this interpreter knows: about 140 000 rows."""
    rows = []
    for code_point in range(sys.maxunicode + 1):
        character = chr(code_point)
        name = unicodedata.name(character, None)
        if name is not None:
            rows.append(
                (
                    code_point,
                    name,
                    unicodedata.category(character),
                    unicodedata.bidirectional(character),
                    unicodedata.combining(character),
                    unicodedata.numeric(character, None),
                    unicodedata.decomposition(character),
                )
            )
    return Source(
        name=f"named characters of Unicode {unicodedata.unidata_version}",
        columns=CHARACTER_COLUMNS,
        key=("code_point",),
        rows=rows,
    )


def from_file(path: Path, key: Sequence[str]) -> Source:
    """Rows of a CSV (with a header line) or Parquet file, read whole.

    Args:
        path: the file; its ending says which kind it is.
        key: names of the columns that identify a row.

    Raises:
        BadSource: the file is missing, unreadable, of another kind or empty; the key is missing
            from it, has nulls or is not unique; a column's type cannot be stored."""
    table = _read(path)
    columns = [_column(field, field.name in key) for field in table.schema]
    _check_key(path, [column["name"] for column in columns], key)
    values = [column.to_pylist() for column in table.columns]
    source = Source(name=path.name, columns=columns, key=tuple(key), rows=list(zip(*values, strict=True)))
    if not source.rows:
        raise BadSource(f"{path} holds no rows; the demo needs some to load")
    _check_key_values(path, source)
    return source


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


_STORED_AS = {
    "bool": "bool",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "null": "string",
}


def _column(field: Any, in_key: bool) -> Mapping[str, Any]:
    text = str(field.type)
    stored = "timestamp[us]" if text.startswith("timestamp[") else _STORED_AS.get(text)
    if stored is None:
        raise BadSource(
            f"column {field.name!r} has type {text}, which is not stored; known types: "
            + ", ".join(sorted({*_STORED_AS.values(), "timestamp[us]"}))
        )
    return {"name": field.name, "type": stored, "nullable": not in_key}


def _check_key(path: Path, names: list[str], key: Sequence[str]) -> None:
    missing = [name for name in key if name not in names]
    if missing or not key:
        wanted = ", ".join(missing) or "nothing"
        raise BadSource(
            f"--key names {wanted}, but {path} has the columns {', '.join(names)}; "
            "name one or more of them, separated by commas"
        )


def _check_key_values(path: Path, source: Source) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for number, row in enumerate(source.rows, start=1):
        found = source.key_of(row)
        if None in found:
            raise BadSource(f"row {number} of {path} has no value in its key {source.key}")
        if found in seen:
            raise BadSource(
                f"rows {seen[found]} and {number} of {path} have the same key {found}; "
                "choose --key columns that identify a row"
            )
        seen[found] = number
