"""Opens the reader of a file."""

from __future__ import annotations

from pathlib import Path

from stelae.spi.errors import CallerError
from stelae_transfer.arrow_reader import ArrowReader, ParquetReader
from stelae_transfer.csv_reader import CsvReader
from stelae_transfer.files import FileKindAndCompression, Format
from stelae_transfer.json_reader import JsonReader
from stelae_transfer.records import RecordReader


def open_reader(path: Path, kind: FileKindAndCompression, *, delimiter: str = "", null: str = "") -> RecordReader:
    """Open a file for one pass.

    Args:
        delimiter: between cells of CSV; empty: a comma, or a tab in ``.tsv``.
        null: text that stands for null in CSV, besides nothing at all.

    Raises:
        NoInput, BrokenInput: it is not there, empty, or not of its kind.
    """
    if delimiter and len(delimiter.encode()) != 1:
        raise CallerError(f"a delimiter is one character, not {delimiter!r}")
    if kind.format in (Format.CSV, Format.TSV):
        between = delimiter or ("\t" if kind.format is Format.TSV else ",")
        return CsvReader(path, kind.compression, delimiter=between, null=null)
    if kind.format is Format.JSONL:
        return JsonReader(path, kind.compression)
    if kind.format is Format.PARQUET:
        return ParquetReader(path)
    return ArrowReader(path, kind.compression)
