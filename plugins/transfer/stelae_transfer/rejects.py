"""The file of bad rows: one JSON object for each, with its number in the input, and why it was not taken."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from stelae.spi.errors import CallerError
from stelae_transfer.records import BadRow

_FIRST_BYTES = b'{"row":'


class RejectsFailed(CallerError, code="REJECTS_FAILED"):
    """The file of bad rows cannot be written."""


class Rejects:
    """Appends bad rows to a file, which is made by the first of them.

    Args:
        path: the file.
        size_bytes: its length as of the last acknowledged row; what follows is cut off and told again.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._file: Any = None
        try:
            known_bytes = path.stat().st_size if path.exists() else 0
            if known_bytes and not _is_ours(path):
                raise RejectsFailed(f"{path} is no file of bad rows; choose another place with --bad-rows")
            if known_bytes < size_bytes:
                fact = f"{path} lacks bad rows that the journal knows of"
                raise RejectsFailed(f"{fact}; say the --bad-rows of the first try, or begin again with --restart")
            if size_bytes:
                os.truncate(path, size_bytes)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from error

    def add(self, rows: Iterable[BadRow]) -> None:
        """Write bad rows; they are durable on return."""
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
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        self._file = self.path.open("ab")

    def _failed(self, error: OSError) -> RejectsFailed:
        fact = f"the file of bad rows {self.path} cannot be written: {error.strerror}"
        return RejectsFailed(f"{fact}; choose another place with --bad-rows")


def _is_ours(path: Path) -> bool:
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
    """What JSON can say: floats that are no numbers as text, anything unknown as text."""
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
            return str(value)  # of a library's own class, which knows nanoseconds
        case None | bool() | int() | float() | bytes() | date() | datetime() | Decimal():
            return value
        case _:
            return str(value)
