"""Where rows go: a terminal, a pipe, or a file that appears only when it is whole."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from stelae.spi.errors import CallerError
from stelae_transfer.files import Format, kind_of
from stelae_transfer.sinks import JsonSink, LinesSink, Sink, TableSink, TextSink, file_sink

PRINTED = ("table", "lines", "text", "json")
BINARY = (Format.PARQUET, Format.ARROW)


class BadOutput(CallerError, code="BAD_OUTPUT"):
    """Rows cannot go where they were to go, in that form."""


class Output:
    """What the command line said of the output.

    Args:
        form: of ``--format``; empty: by the name of the file, a table on a terminal, else lines of text.
        path: of ``--output``.
        overwrite: whether the file may exist.
    """

    def __init__(self, form: str, path: Path | None, *, overwrite: bool = False) -> None:
        known = [*PRINTED, *Format]
        if form and form not in known:
            raise BadOutput(f"there is no format {form!r}; known: {', '.join(known)}")
        self.path = path
        self._compression = ""
        if path is not None:
            if path.exists() and not overwrite:
                raise BadOutput(f"{path} exists; replace it with --overwrite, or choose another name")
            kind = kind_of(path, "" if form in PRINTED else form) if form not in PRINTED else None
            self._compression = kind.compression if kind else ""
            form = form or str(kind.format if kind else "")
        self.form = form or ("table" if sys.stdout.isatty() else "text")
        if path is None and self.form in BINARY and sys.stdout.isatty():
            raise BadOutput(f"{self.form} is not for a terminal: write a file with --output, or a pipe")

    @contextmanager
    def sink(self, schema: Any, kept: Sequence[str] = ()) -> Iterator[Sink]:
        """A sink for rows of a schema. An error ends what was printed, and leaves no file.

        Args:
            kept: columns that a table shows before others."""
        with self._stream() as out:
            sink = self._sink(out, schema, kept)
            try:
                yield sink
            except BrokenPipeError:
                raise
            except BaseException as error:
                sink.finish(str(error) or type(error).__name__)
                out.flush()
                raise
            sink.finish()
            out.flush()

    def _sink(self, out: IO[bytes], schema: Any, kept: Sequence[str]) -> Sink:
        width = shutil.get_terminal_size((80, 24)).columns
        match self.form:
            case "table":
                return TableSink(out, schema, width, kept)
            case "lines":
                return LinesSink(out, schema, width)
            case "text":
                return TextSink(out, schema)
            case "json":
                return JsonSink(out, schema)
            case _:
                return file_sink(Format(self.form), out, schema)

    @contextmanager
    def _stream(self) -> Iterator[IO[bytes]]:
        if self.path is None:
            sys.stdout.flush()
            yield sys.stdout.buffer
            return
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        try:
            with partial.open("xb") as file, _compressed(file, self._compression) as out:
                yield out
            with partial.open("rb+") as whole:
                os.fsync(whole.fileno())
            partial.replace(self.path)
        except OSError as error:
            raise BadOutput(f"{self.path} cannot be written: {error.strerror or error}") from error
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


def printed(run: Any) -> int:
    """Run what prints and return its exit code; whoever reads may stop reading."""
    from stelae.cli.kit.errors import EXIT_OK

    try:
        return int(run())
    except BrokenPipeError:
        # Else the interpreter would try to flush the rest, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
