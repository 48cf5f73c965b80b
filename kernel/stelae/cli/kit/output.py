"""Output of commands: one JSON document or a table on standard output, everything else on standard error.

With ``--json`` a command prints exactly one document, also when it reports a failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TextIO

import typer

from stelae.cli.kit.json_document import DOCUMENT


def _begin(asked: bool) -> bool:
    DOCUMENT.begin(asked=asked)
    return asked


JsonOption = Annotated[
    bool, typer.Option("--json", callback=_begin, help="Print one JSON document instead of text for people.")
]
"""The ``--json`` option that every command has."""

LogFormatOption = Annotated[
    Literal["text", "json"] | None, typer.Option("--log-format", help="Log as text or as JSON. Overrides node.toml.")
]
"""The ``--log-format`` option of the commands that run a node."""


def command_group(help_text: str) -> typer.Typer:
    """Return an application for a group of commands. Its help is plain text, without markup."""
    return typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=help_text)


def print_json(document: Any) -> None:
    """Print one JSON document of dataclasses and plain values. Keys keep their order. Bytes of a file name that are not
    UTF-8 are escaped, because JSON cannot hold them."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    try:
        text = orjson.dumps(document, option=options).decode()
    except orjson.JSONEncodeError:
        text = orjson.dumps(_escaped(document), option=options).decode()
    DOCUMENT.printed = True
    sys.stdout.write(text)
    sys.stdout.flush()


def _escaped(document: Any) -> Any:
    """Return a document whose texts are valid Unicode."""
    import msgspec

    def escaped(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, dict):
            return {escaped(key): escaped(part) for key, part in value.items()}
        return [escaped(part) for part in value] if isinstance(value, list | tuple) else value

    return escaped(msgspec.to_builtins(document))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with columns as wide as their contents. The last column is not padded."""
    cells = [list(headers), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(padded).rstrip())


STANDARD_OUTPUT = "standard output"
"""How errors name it as a file."""


@contextmanager
def flushed_output() -> Iterator[None]:
    """Flush standard output at the end, also after an error, so that the command knows of what could not be written.

    The interpreter flushes at its exit, too late for a message and an exit code of ours.

    Raises:
        OSError: standard output could not be written; it is named as the file. The rest of it is dropped. A command
            that has failed already keeps its own error if the reader closed the pipe."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or isinstance(error, BrokenPipeError) or not _takes_nothing(sys.stdout):
            raise
        drop_output()
        raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from error
    finally:
        _flush_at_the_end()


def _flush_at_the_end() -> None:
    ending = sys.exc_info()[1]
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        drop_output()
        succeeded = ending is None or (isinstance(ending, SystemExit) and not ending.code)
        if succeeded or not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from error


def _takes_nothing(out: TextIO | None) -> bool:
    """Return whether a stream of the operating system takes not even a line break: then an error without the name of a
    file is an error of it. Flushing would not show that, because what could not be written is lost if it is unbuffered.
    """
    try:
        number = out.fileno() if out is not None else None
    except OSError:
        return False
    try:
        return number is not None and os.write(number, b"\n") == 0
    except OSError:
        return True


def drop_output() -> None:
    """Let nothing more reach standard output. Otherwise the interpreter would flush the rest and report an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Print a remark on standard error."""
    print(text, file=sys.stderr, flush=True)
