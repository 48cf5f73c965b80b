"""Ctrl-C: the exit code, and the document of ``--json`` that the command still owes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stelae.cli.kit.errors import EXIT_INTERRUPTED, print_owed
from stelae.cli.kit.output import note

INTERRUPTED = "interrupted"


@contextmanager
def reported_interrupt() -> Iterator[None]:
    """End an interrupted command with its exit code, and with a document if it owes one.

    ``typer`` turns the interrupt into that exit code, and some commands do so after they have stopped their processes.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        note(INTERRUPTED)
        print_owed(error, INTERRUPTED)
        sys.exit(EXIT_INTERRUPTED)
    except SystemExit as end:
        if end.code == EXIT_INTERRUPTED:
            print_owed(KeyboardInterrupt(), INTERRUPTED)
        raise
