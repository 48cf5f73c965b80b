"""The output of rows: a terminal, a pipe, or a file that appears only when it is complete."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from stelae.cli.kit.json_document import DOCUMENT
from stelae.cli.kit.output import drop_output
from stelae.spi.errors import CallerError
from stelae_transfer.files import Format, file_format, sync_directory_of
from stelae_transfer.sinks import JsonSink, LateSink, LinesSink, Sink, TableSink, TextSink, file_sink

PRINTED = ("table", "lines", "text", "json")
BINARY = (Format.PARQUET, Format.ARROW)


class BadOutput(CallerError, code="BAD_OUTPUT"):
    """The rows cannot be written to this output in this format."""


class Output:
    """The format and destination of rows, from the command line.

    Args:
        form: the value of ``--format``. Empty: by the name of the file; without a file, a table on a terminal and
            tab-separated text elsewhere.
        path: the value of ``--output``. A named pipe or a device is written to, and never replaced.
        overwrite: whether an existing file is replaced.

    Raises:
        BadOutput: the format is unknown, the file exists, or the format is binary and the output is a terminal.
        UnknownFormat: the name of the file does not show the format.
    """

    def __init__(self, form: str, path: Path | None, *, overwrite: bool = False) -> None:
        known = [*PRINTED, *Format]
        if form and form not in known:
            raise BadOutput(f"unknown format {form!r}; known formats: {', '.join(known)}")
        self.path = path
        self._compression = ""
        self._is_pipe = path is not None and path.exists() and not (path.is_file() or path.is_dir())
        if path is not None:
            if path.exists() and not overwrite and not self._is_pipe:
                raise BadOutput(f"{path} exists; replace it with --overwrite, or choose another name")
            kind = file_format(path, "" if form in PRINTED else form) if form not in PRINTED else None
            self._compression = kind.compression if kind else ""
            form = form or str(kind.format if kind else "")
        self.form = form or ("table" if sys.stdout.isatty() else "text")
        if path is None and self.form in BINARY and sys.stdout.isatty():
            raise BadOutput(f"{self.form} is a binary format; write it to a file with --output, or to a pipe")

    @contextmanager
    def sink(self, schema: Any, first_columns: Sequence[str] = ()) -> Iterator[Sink]:
        """Open a sink for rows of a schema. After an error, printed rows end with the error, and no file is left.

        Args:
            schema: the Arrow schema of the rows.
            first_columns: columns that a table shows in preference to others."""
        with self._stream() as out:
            sink = LateSink(lambda: self._sink(out, schema, first_columns))
            try:
                yield sink
            except BrokenPipeError:
                raise
            except BaseException as error:
                sink.finish(error)
                out.flush()
                raise
            sink.finish()
            out.flush()

    def _sink(self, out: IO[bytes], schema: Any, first_columns: Sequence[str]) -> Sink:
        width = shutil.get_terminal_size((80, 24)).columns
        match self.form:
            case "table":
                return TableSink(out, schema, width, first_columns)
            case "lines":
                return LinesSink(out, schema, width)
            case "text":
                return TextSink(out, schema)
            case "json":
                DOCUMENT.printed = DOCUMENT.printed or self.path is None
                return JsonSink(out, schema)
            case _:
                return file_sink(Format(self.form), out, schema)

    @contextmanager
    def _stream(self) -> Iterator[IO[bytes]]:
        if self.path is None:
            sys.stdout.flush()
            yield sys.stdout.buffer
            return
        opened = _opened(self.path) if self._is_pipe else _replacing(self.path.resolve())
        try:
            with opened as file, _compressed(file, self._compression) as out:
                yield out
        except OSError as error:
            raise BadOutput(f"cannot write {self.path}: {error.strerror or error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a named pipe or a device, which is not replaced."""
    with path.open("wb") as file:
        yield file


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file. At the end it is made durable, and then gets the name of the file, durably.

    After an error the new file is removed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("xb") as file:
            yield file
        with partial.open("rb+") as complete:  # A compressed stream has closed the file.
            os.fsync(complete.fileno())
        partial.replace(path)
        with suppress(PermissionError):  # Of a directory that may be written to and not read.
            sync_directory_of(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _compressed(file: IO[bytes], compression: str) -> Iterator[Any]:
    if not compression:
        yield file
        return
    import pyarrow as pa

    with pa.CompressedOutputStream(pa.PythonFile(file, "w"), compression) as out:
        yield out


def run_printing(run: Callable[[], int]) -> int:
    """Run a function that prints, and return its exit code. It may end early because the reader closed the pipe."""
    from stelae.cli.kit.errors import EXIT_OK

    try:
        return run()
    except BrokenPipeError:
        drop_output()
        return EXIT_OK
