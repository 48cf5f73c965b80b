"""Reads a file of rules for faults, again and again while a node runs. A test replaces the file by a rename."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from stelae.spi.errors import ConfigError

LOOK_S = 0.02
"""Seconds between two checks whether the file has changed."""

_Rule = TypeVar("_Rule")


class RulesFile:
    """The file at a path. It need not exist. Not thread-safe: callers need a lock for all methods but ``due``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._read = (0, 0)
        self._look_at = 0.0

    def due(self) -> bool:
        """Return whether it is time to check the file. If it is, the next check is due in ``LOOK_S``."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_S
        return True

    def changed(self) -> bool:
        """Return whether the file was replaced, created or removed since the last call."""
        try:
            found = os.stat(self.path)
        except OSError:
            stamp = (0, 0)
        else:
            stamp = (found.st_mtime_ns, found.st_ino)
        before, self._read = self._read, stamp
        return stamp != before

    def rules(self, kind: type[_Rule], what: str, check: Callable[[_Rule], None]) -> tuple[_Rule, ...]:
        """Read the rules; without a file there are none.

        Args:
            kind: type of the rules.
            what: what the rules are for, for the error.
            check: raises an error for a rule that is not possible.

        Raises:
            ConfigError: the file cannot be read, or has something else in it.
        """
        if self._read == (0, 0):
            return ()
        try:
            with open(self.path, "rb") as file:
                found = msgspec.json.decode(file.read(), type=tuple[kind, ...])  # type: ignore[valid-type]
        except (OSError, ValueError) as error:
            raise ConfigError(f"the rules of {what} cannot be read: {error}", where=self.path) from error
        for rule in found:
            check(rule)
        return found
