"""The file of bad rows: one JSON object for each bad row, with its number in the input and the reason."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from stelae.spi.errors import CallerError
from stelae_transfer.files import sync_directory_of
from stelae_transfer.row_chunks import BadRow

_FIRST_BYTES = b'{"row":'


class RejectsFailed(CallerError, code="REJECTS_FAILED"):
    """The file of bad rows cannot be written."""


class Rejects:
    """Appends bad rows to a file. The first bad row creates the file.

    Args:
        path: the file.
        size_bytes: the length of the file as of the last acknowledged row, from the journal. The rest is cut off,
            because the import reads those rows again.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._file: Any = None
        try:
            known_bytes = path.stat().st_size if path.exists() else 0
            if path.exists() and not path.is_file():
                raise RejectsFailed(f"{path} is not a regular file; choose another file with --bad-rows")
            if known_bytes and not _is_bad_rows_file(path):
                raise RejectsFailed(f"{path} exists and is not a file of bad rows; choose another file with --bad-rows")
            if known_bytes < size_bytes:
                fact = f"{path} lacks bad rows that the journal has recorded"
                step = "pass the same --bad-rows as the interrupted import, or start over with --restart"
                raise RejectsFailed(f"{fact}; {step}")
            if size_bytes:
                os.truncate(path, size_bytes)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from error

    def add(self, rows: Iterable[BadRow]) -> None:
        """Append bad rows. They are durable on return."""
        listed = [*rows]
        if not listed:
            return
        try:
            if self._file is None:
                self._open()
            for row in listed:
                self.size_bytes += self._file.write(line_of(row))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Close the file. All rows are durable before, or ``add`` has raised an error."""
        if self._file is not None:
            with suppress(OSError):  # It writes what is left in the buffer of an ``add`` that failed.
                self._file.close()

    def _open(self) -> None:
        self._file = self.path.open("ab")
        sync_directory_of(self.path)

    def _failed(self, error: OSError) -> RejectsFailed:
        fact = f"cannot write the file of bad rows {self.path}: {error.strerror}"
        return RejectsFailed(f"{fact}; choose another file with --bad-rows")


def _is_bad_rows_file(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_FIRST_BYTES)) == _FIRST_BYTES


def line_of(row: BadRow) -> bytes:
    """Return a bad row as a line of JSON."""
    body: dict[str, Any] = {"row": row.row, "code": row.code, "reason": row.reason}
    if row.rows > 1:
        body["rows"] = row.rows
    if row.values is not None:
        body["values"] = row.values
    return msgspec.json.encode(_plain(body)) + b"\n"


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent. NaN, infinities and unknown types become text."""
    match value:
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case str():
            return value.encode(errors="replace").decode()
        case date() if type(value) not in (date, datetime):
            return str(value)  # A subclass of another library, such as pandas, with nanoseconds.
        case None | bool() | int() | float() | bytes() | date() | datetime() | Decimal():
            return value
        case _:
            return str(value)
