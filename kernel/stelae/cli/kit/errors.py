"""Exit codes, and how an error is told: on standard error, the reason last."""

from __future__ import annotations

import sys

from stelae.spi.errors import CallerError, ConfigError, PluginError, StelaeError, TooOld

EXIT_OK = 0
EXIT_FAILED = 1
"""The command ran and what it was to do or to check did not hold."""
EXIT_MISUSED = 2
"""Configuration, plugins or arguments have to be corrected first."""
EXIT_INTERRUPTED = 130
"""Ctrl-C."""


def exit_code(error: StelaeError) -> int:
    """Return the exit code by who must act: whoever typed or configured it, or the operator."""
    return EXIT_MISUSED if isinstance(error, ConfigError | PluginError | CallerError) else 1


def report(error: StelaeError) -> int:
    """Tell an error on standard error and return the exit code."""
    print(f"error: {error}{_hint(error)}", file=sys.stderr)
    return exit_code(error)


def _hint(error: StelaeError) -> str:
    """What a command says besides: a number of 19 digits tells nobody from when on the past can be read."""
    if not isinstance(error, TooOld):
        return ""
    from stelae.client.times import to_datetime
    from stelae.protocol.tablet_messages import TIMESTAMP_MAX

    if not 0 < error.floor <= TIMESTAMP_MAX:
        return ""
    when = to_datetime(error.floor).astimezone().isoformat(timespec="seconds")
    return f"; the past can be read from {when} on"
