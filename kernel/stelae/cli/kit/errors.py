"""Exit codes, and the report of an error: on standard error, and as the document of ``--json``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stelae.cli.kit.json_document import DOCUMENT
from stelae.spi.errors import CallerError, ConfigError, PluginError, StelaeError, StorageError, TooOld

EXIT_OK = 0
EXIT_FAILED = 1
"""The command ran, and it failed or what it checked does not hold."""
EXIT_MISUSED = 2
"""The configuration, a plugin or an argument must be corrected first."""
EXIT_INTERRUPTED = 130
"""The user pressed Ctrl-C."""


def exit_code(error: StelaeError) -> int:
    """Return the exit code of an error: 2 if the command line, configuration or plugins are wrong, otherwise 1."""
    return EXIT_MISUSED if isinstance(error, ConfigError | PluginError | CallerError) else 1


def code_of(error: BaseException) -> str:
    """Return the code of an error in a JSON document: of a peer's error the peer's code."""
    if isinstance(error, StelaeError):
        return str(getattr(error, "remote_code", error.code))
    if isinstance(error, OSError):
        return StorageError.code
    from asyncio import CancelledError  # Here, because most commands end without an error, and some without asyncio.

    return "INTERRUPTED" if isinstance(error, KeyboardInterrupt | CancelledError) else "INTERNAL"


def report(error: StelaeError) -> int:
    """Print an error on standard error and return the exit code.

    With ``--json`` the error is also printed as a document on standard output, unless the command has begun its own.
    """
    text = f"{error}{_hint(error)}"
    print(f"error: {text}", file=sys.stderr)
    print_owed(error, text)
    return exit_code(error)


def report_file_error(error: OSError) -> int:
    """Print the path and the reason of an error of a file, and return the exit code.

    Nothing is printed if the reader of standard output closed the pipe.

    Raises:
        OSError: the error itself, because it has no path. Its traceback is the only hint to where it comes from.
    """
    from stelae.cli.kit.output import STANDARD_OUTPUT

    if isinstance(error, BrokenPipeError) and error.filename == STANDARD_OUTPUT:
        return EXIT_FAILED
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes | Path)]
    if not names:
        raise error
    return report(StorageError(error.strerror or str(error), path=" -> ".join(names)))


def report_refusal(end: SystemExit) -> None:
    """Print the document that is owed if the parser has refused the command line. It has printed its message itself."""
    message = getattr(end.__context__, "format_message", None)
    if message is not None:
        print_owed(CallerError(message()), message())


def print_owed(error: BaseException, text: str) -> None:
    """Print an error as a JSON document, if the command owes one. The reader may have closed the pipe, or the disk be
    full."""
    if not DOCUMENT.is_owed:
        return
    from stelae.cli.kit.output import drop_output, print_json

    try:
        print_json({"code": code_of(error), "error": text})
    except OSError:
        drop_output()


def _hint(error: StelaeError) -> str:
    """Return an addition to the message of ``TooOld``: its floor, a hybrid timestamp, as a date."""
    if not isinstance(error, TooOld):
        return ""
    from stelae.client.times import to_datetime
    from stelae.protocol.tablet_messages import TIMESTAMP_MAX

    if not 0 < error.floor <= TIMESTAMP_MAX:
        return ""
    when = to_datetime(error.floor).astimezone().isoformat(timespec="seconds")
    return f"; the oldest readable time is {when}"
