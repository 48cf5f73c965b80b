"""The replacements of the mutants in ``lease_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.sim.mutations import Original


def ignore_drift(original: Original, timeout_us: int, drift_ppm_max: int) -> int:
    """A lease is as long as voters withhold their votes, whatever their clocks do."""
    return timeout_us if drift_ppm_max else 0


def keep_over_transfer(original: Original, self: Any) -> None:
    """The lease goes on while the successor campaigns."""


def count_from_answer(original: Original, self: Any, round_number: int) -> None:
    """The lease begins when the majority has answered, not when the round was sent."""
    before = self._until_us
    original(self, round_number)
    if self._until_us > before:
        self._until_us += self._length_us // 2


def forget_at_start(original: Original, self: Any, promised_us: int) -> None:
    """A voter that restarts votes at once, although it has promised not to."""
    original(self, promised_us)
    self.withhold_until_us = 0


def keep_over_changes(original: Original, self: Any, round_number: int) -> None:
    """Promises of the members of an old config go on to count."""


def count_any_answer(original: Original, self: Any, sender: Any, reply: Any) -> None:
    """The answer of a replica that promises nothing counts as a promise."""
    state = self._state
    original(self, sender, msgspec.structs.replace(reply, withholds_us=state.timeout_us))


def promise_before_durable(original: Original, self: Any) -> int:
    """A voter promises what a start after a crash would not know of."""
    return self.timeout_us if self.lease_length_us and self.is_voter else 0


def never_end(original: Original, self: Any, now_us: int) -> bool:
    """A lease that was given once is valid as long as the leader believes to lead."""
    return bool(self._until_us)
