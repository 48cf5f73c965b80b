"""Exit codes, and how an error is told: on standard error, the reason last."""

from __future__ import annotations

import sys

from stelae.spi.errors import CallerError, ConfigError, PluginError, StelaeError

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
    print(f"error: {error}", file=sys.stderr)
    return exit_code(error)
