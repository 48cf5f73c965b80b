"""The format of an input or output file, and the decompressed bytes of an input file."""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from stelae.spi.errors import CallerError


class Format(StrEnum):
    """File formats that rows are read from and written to."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


class UnknownFormat(CallerError, code="UNKNOWN_FORMAT"):
    """The format of a file is unknown, or cannot be used here."""


class NoInput(CallerError, code="NO_INPUT"):
    """The input file does not exist, cannot be opened, is a pipe, or is empty."""


class BrokenInput(CallerError, code="BROKEN_INPUT"):
    """The rest of the input file cannot be read. Rows that were read before are valid."""


_FORMATS = {
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".tab": Format.TSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}
_COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}

UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class FileFormat(NamedTuple):
    """The format of a file and its compression."""

    format: Format
    compression: str = ""  #: ``gzip``, ``zstd``, or empty for none.


def file_format(path: Path, chosen: str = "") -> FileFormat:
    """Return the format and compression of a file by the ending of its name.

    Args:
        path: the file, which need not exist.
        chosen: a format that overrides the ending; empty: none.

    Raises:
        UnknownFormat: the name does not show the format, ``chosen`` is unknown, or the compression does not go with
            the format. The message has the known formats and endings.
    """
    endings = [ending.lower() for ending in path.suffixes[-2:]]
    compression = _COMPRESSIONS.get(endings[-1], "") if endings else ""
    if compression:
        endings.pop()
    if chosen and chosen not in [*Format]:
        raise UnknownFormat(f"unknown format {chosen!r}; known formats: {', '.join(Format)}")
    found = Format(chosen) if chosen else _FORMATS.get(endings[-1] if endings else "")
    if found is None:
        known = ", ".join([*_FORMATS, *(f".csv{ending}" for ending in (".gz", ".zst"))])
        fact = f"cannot tell the format of {path.name!r}"
        raise UnknownFormat(f"{fact}; pass --format {', '.join([*Format][:-1])} or {[*Format][-1]} (endings: {known})")
    if found is Format.PARQUET and compression:
        raise UnknownFormat(
            f"{path.name}: a Parquet file is compressed inside; remove the outer {compression} compression first"
        )
    return FileFormat(found, compression)


class Stream:
    """The decompressed bytes of a file, with the reading progress.

    Raises:
        NoInput: the file does not exist, cannot be opened, is a pipe, or is empty.
    """

    def __init__(self, path: Path, compression: str) -> None:
        import pyarrow as pa

        self._path = path
        refuse_pipe(path)
        try:
            self.size_bytes = path.stat().st_size
            self._raw: Any = pa.OSFile(str(path), "rb")
        except OSError as error:
            reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
            raise NoInput(f"{path}: {reason}") from error
        if not self.size_bytes:
            self._raw.close()
            raise NoInput(f"{path} is empty: there is nothing to read")
        if compression and _is_empty(path, compression):
            self._raw.close()
            raise NoInput(f"{path} is an empty {compression} file: there is nothing to read")
        self.file: Any = pa.CompressedInputStream(self._raw, compression) if compression else self._raw

    def read_begin(self) -> bytes:
        """Return the first bytes of a text file without its UTF-8 mark: at most three, and none at the end of the file.

        Raises:
            BrokenInput: the file begins with a mark of UTF-16.
        """
        begin = b""
        while len(begin) < len(UTF8_MARK) and (more := self.file.read(len(UTF8_MARK) - len(begin))):
            begin += more
        check_utf8(self._path, begin)
        return begin.removeprefix(UTF8_MARK)

    def fraction_read(self, seen_bytes: int) -> float:
        """Return which fraction of the file ``seen_bytes`` decompressed bytes are, from 0 to 1.

        For a compressed file, return the fraction of the compressed bytes that have been read."""
        done = seen_bytes if self.file is self._raw else self._raw.tell()
        return min(1.0, done / self.size_bytes)

    def close(self) -> None:
        """Close the file. May be called more than once."""
        self.file.close()
        self._raw.close()


def refuse_pipe(path: Path) -> None:
    """Raise ``NoInput`` if a file is a pipe, a device or standard input. A missing file is reported when it is opened.

    An import reads its file for the digest, for the types and for the rows, and a repeated import reads it again."""
    step = "an import reads its file several times; write the rows to a regular file first, and import that file"
    try:
        mode = path.stat().st_mode
    except OSError:
        if str(path) == "-":
            raise NoInput(f"standard input cannot be imported, because {step}") from None
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise NoInput(f"{path} is not a regular file, and {step}")


def check_utf8(path: Path, begin: bytes) -> None:
    """Raise ``BrokenInput`` if the first bytes of a text file are a mark of UTF-16."""
    if begin[:2] in UTF16_MARKS:
        fact = f"{path} is UTF-16, and only UTF-8 can be read"
        raise BrokenInput(f"{fact}; convert it with iconv -f UTF-16 -t UTF-8")


def _is_empty(path: Path, compression: str) -> bool:
    """Return whether the decompressed file is empty. A file that cannot be decompressed is reported when it is read."""
    import pyarrow as pa

    try:
        with pa.OSFile(str(path), "rb") as raw, pa.CompressedInputStream(raw, compression) as unpacked:
            return not unpacked.read(1)
    except (OSError, pa.ArrowException):
        return False


def sync_directory_of(path: Path) -> None:
    """Make the name of a file durable, after it was created, renamed or removed. Raises ``OSError``."""
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
