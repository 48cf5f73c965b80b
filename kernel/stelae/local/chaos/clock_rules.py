"""Makes the wall clock of a running node wrong, by rules from a file. Used by tests.

The file is a JSON list with at most one rule, such as ``[{"ahead_ms": 300}]``; a negative number puts the clock behind.
The node checks the file when it reads its wall clock, at most every ``rules_file.LOOK_S``. To change the rules while
the node runs, replace the file by a rename. Without a file, or with an empty list, the clock is that of the machine.

Timeouts and leases use the monotonic clock, which no rule changes."""

import threading

import msgspec

from stelae.local.chaos.rules_file import RulesFile
from stelae.spi.errors import ConfigError
from stelae.spi.services import Clock

AHEAD_MS_MAX = 86_400_000
"""The largest error of a clock: a day."""


class ClockRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The error of the wall clock."""

    ahead_ms: int = 0  #: How far the clock is ahead; negative: behind.


class SkewedClock:
    """A clock whose wall time follows the rules of a file. Safe to use from any thread.

    Args:
        path: the file of rules; it need not exist.
        clock: the clock of the machine.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._file = RulesFile(path)
        self._clock = clock
        self._ahead_us = 0
        self._lock = threading.Lock()

    def monotonic_us(self) -> int:
        """Microseconds on the monotonic clock of the machine."""
        return self._clock.monotonic_us()

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch, with the error that the rules say. The time jumps when they change."""
        if self._file.due():
            with self._lock:
                if self._file.changed():
                    rules = self._file.rules(ClockRule, "the clock", self._check)
                    if len(rules) > 1:
                        raise ConfigError(f"there are {len(rules)} rules for one clock", where=self._file.path)
                    self._ahead_us = sum(rule.ahead_ms for rule in rules) * 1000
        return self._clock.wall_us() + self._ahead_us

    def _check(self, rule: ClockRule) -> None:
        """Check a rule; ``ConfigError``: the error is more than a day."""
        if abs(rule.ahead_ms) > AHEAD_MS_MAX:
            fact = f"a rule puts the clock {rule.ahead_ms} ms ahead"
            raise ConfigError(
                fact, where=self._file.path, hint=f"ahead_ms is from -{AHEAD_MS_MAX} to {AHEAD_MS_MAX}, a day"
            )
