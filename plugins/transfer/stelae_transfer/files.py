"""Which kind of file a path names, and its bytes as a stream, decompressed on the way."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from stelae.spi.errors import CallerError


class Format(StrEnum):
    """Kinds of files that rows are read from and written to."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


class UnknownFormat(CallerError, code="UNKNOWN_FORMAT"):
    """A file whose name says nothing of its kind, or a kind that cannot be used there."""


class NoInput(CallerError, code="NO_INPUT"):
    """A file that is not there, cannot be opened, or is empty."""


class BrokenInput(CallerError, code="BROKEN_INPUT"):
    """A file that cannot be read on: what was read before stands."""


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


class FileKindAndCompression(NamedTuple):
    """What a file is: its format, and ``gzip``, ``zstd`` or nothing around it."""

    format: Format
    compression: str = ""


def kind_of(path: Path, chosen: str = "") -> FileKindAndCompression:
    """Return what a file's name says; ``chosen`` is a format that stands above the name.

    Raises:
        UnknownFormat: with the endings that are known.
    """
    endings = [ending.lower() for ending in path.suffixes[-2:]]
    compression = _COMPRESSIONS.get(endings[-1], "") if endings else ""
    if compression:
        endings.pop()
    if chosen and chosen not in [*Format]:
        raise UnknownFormat(f"there is no format {chosen!r}; known: {', '.join(Format)}")
    found = Format(chosen) if chosen else _FORMATS.get(endings[-1] if endings else "")
    if found is None:
        known = ", ".join([*_FORMATS, *(f".csv{ending}" for ending in (".gz", ".zst"))])
        raise UnknownFormat(f"the name {path.name!r} says no format; known endings: {known}; or say it with --format")
    if found is Format.PARQUET and compression:
        raise UnknownFormat(f"{path.name}: Parquet is compressed inside; unpack the {compression} around it first")
    return FileKindAndCompression(found, compression)


class Stream:
    """The bytes of a file in their order, decompressed, and how far reading has come.

    Raises:
        NoInput: there is no such file, it cannot be opened, or it holds nothing.
    """

    def __init__(self, path: Path, compression: str) -> None:
        import pyarrow as pa

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
            raise NoInput(f"{path} is empty inside its {compression}: there is nothing to read")
        self.file: Any = pa.CompressedInputStream(self._raw, compression) if compression else self._raw

    def share(self, seen_bytes: int) -> float:
        """Return how much of the file so many bytes of contents are, from 0 to 1.

        Of a compressed file only how much of it has been read is known."""
        done = seen_bytes if self.file is self._raw else self._raw.tell()
        return min(1.0, done / self.size_bytes)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self.file.close()
        self._raw.close()


def _is_empty(path: Path, compression: str) -> bool:
    """Whether nothing was packed; what cannot be unpacked is for whoever reads on."""
    import pyarrow as pa

    try:
        with pa.OSFile(str(path), "rb") as raw, pa.CompressedInputStream(raw, compression) as unpacked:
            return not unpacked.read(1)
    except (OSError, pa.ArrowException):
        return False
