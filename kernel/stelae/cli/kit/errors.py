"""Exit codes, and the report of an error on standard error."""

from __future__ import annotations

import sys

from stelae.spi.errors import CallerError, ConfigError, PluginError, StelaeError, TooOld

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


def report(error: StelaeError) -> int:
    """Print an error on standard error and return the exit code."""
    print(f"error: {error}{_hint(error)}", file=sys.stderr)
    return exit_code(error)


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
