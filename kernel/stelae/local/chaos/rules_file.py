"""A file of rules for faults: JSON, replaced whole by whoever runs a test, and looked at while the node runs."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from stelae.spi.errors import ConfigError

LOOK_S = 0.02
"""How long rules that were read are used before the file is looked at again."""

Rule = TypeVar("Rule")


class RulesFile:
    """The file at a path, which need not exist. Not safe for threads: callers hold a lock, but for ``due``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._read = (0, 0)
        self._look_at = 0.0

    def due(self) -> bool:
        """Whether it is time to look again; the next time is ``LOOK_S`` from now."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_S
        return True

    def changed(self) -> bool:
        """Whether the file is another one than at the last call, or gone since."""
        try:
            found = os.stat(self.path)
        except OSError:
            stamp = (0, 0)
        else:
            stamp = (found.st_mtime_ns, found.st_ino)
        before, self._read = self._read, stamp
        return stamp != before

    def rules(self, kind: type[Rule], what: str, check: Callable[[Rule], None]) -> tuple[Rule, ...]:
        """Read the rules, each of which ``check`` accepts; none if there is no file.

        Raises:
            ConfigError: the file holds something else. ``what`` names what the rules are for.
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
