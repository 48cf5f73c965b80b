"""Opens the reader of a file."""

from __future__ import annotations

from pathlib import Path

from stelae.spi.errors import CallerError
from stelae_transfer.arrow_reader import ArrowReader, ParquetReader
from stelae_transfer.csv_reader import CsvReader
from stelae_transfer.files import FileFormat, Format
from stelae_transfer.json_reader import JsonReader
from stelae_transfer.row_chunks import LateColumns, RowChunkReader


def open_reader(
    path: Path, kind: FileFormat, *, delimiter: str = "", null: str = "", late: LateColumns = LateColumns.LOAD
) -> RowChunkReader:
    """Open a file for one pass.

    Args:
        kind: the format and compression of the file.
        delimiter: the character between the cells of CSV. Empty: a comma, or a tab in ``.tsv``.
        null: text that means null in CSV, in addition to an empty cell.
        late: what to do with members of JSON lines that the first rows do not have.

    Raises:
        NoInput: the file does not exist, cannot be opened, is a pipe, or is empty.
        BrokenInput: the file does not have this format.
        CallerError: the delimiter is not one character.
    """
    if delimiter and len(delimiter.encode()) != 1:
        raise CallerError(f"--delimiter takes one character, not {delimiter!r}")
    if kind.format in (Format.CSV, Format.TSV):
        between = delimiter or ("\t" if kind.format is Format.TSV else ",")
        return CsvReader(path, kind.compression, delimiter=between, null=null)
    if kind.format is Format.JSONL:
        return JsonReader(path, kind.compression, late=late)
    if kind.format is Format.PARQUET:
        return ParquetReader(path)
    return ArrowReader(path, kind.compression)
