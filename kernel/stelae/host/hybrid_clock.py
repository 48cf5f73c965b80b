"""The node's hybrid clock: physical microseconds and a logical counter in one integer.

A timestamp is ``physical_us << 12 | logical``. Timestamps given out rise strictly, also across
restarts and whatever the wall clock does.

Ordering and durability
    1. No timestamp above the *durable ceiling* is ever given out. The ceiling is raised ahead of
       use, off the loop, in steps of ``step_ms``; the next one is asked for when half a step is left, so a running node
       does not wait for it. While a raise is late, time goes on in logical steps below the old ceiling.
    2. A new clock starts above the stored ceiling, hence above all that an earlier run gave out.
    3. A timestamp from a peer that is further ahead than ``clock_error_ms_max`` is refused before
       the clock moves. One above the durable ceiling is refused too, and the ceiling is raised
       for it, so that a repetition succeeds.

Wall clocks that jump (behaviour D6)
    The wall clock is believed while it agrees with the monotonic clock to ``clock_error_ms_max`` from one reading to
    the next. After a larger jump either way the clock goes on from where it was at the monotonic clock's pace. The new
    wall time is adopted when a peer's timestamp bears it out, or at restart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from stelae.spi.errors import ClockError
from stelae.spi.services import Clock
from stelae.spi.settings import setting

LOGICAL_BITS = 12
"""Room for 4096 timestamps within one microsecond."""

SaveCeiling: TypeAlias = Callable[[int, Callable[[object], None]], None]
"""``save(ceiling, done)``: make it durable off the loop, then ``done(None)`` or ``done(error)``."""

_RETRY_US = 100_000  #: Pause after a failed save of the ceiling: a full disk must not become a busy loop.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSettings:
    """Section ``[clock]`` of ``node.toml``."""

    clock_error_ms_max: int = setting(
        10_000, unit="ms", low=100, high=3_600_000, reason="a peer further ahead is refused"
    )
    step_ms: int = setting(4_000, unit="ms", low=20, high=600_000, reason="one small write of the clock per half step")

    @property
    def error_us_max(self) -> int:
        """``clock_error_ms_max`` in microseconds."""
        return self.clock_error_ms_max * 1000

    @property
    def ahead_us_max(self) -> int:
        """How far a running clock may be ahead of the wall clock: it begins above what an earlier run has reserved, and
        follows its peers. Until the wall clock has caught up, timestamps rise by their logical part only."""
        return self.error_us_max + self.step_us

    @property
    def step_us(self) -> int:
        """``step_ms`` in microseconds, capped so that peers accept a restarted node."""
        return min(self.step_ms, self.clock_error_ms_max // 2) * 1000

    @property
    def margin_us(self) -> int:
        """The step while timestamps are ahead of the wall clock: they then rise by the logical part
        only, and a node that restarts again and again gets ahead by no more than this each time."""
        return self.step_us // 16

    def ceiling(self, wall_us: int, ahead_us: int) -> int:
        """Return the ceiling that lasts for a step, given the believed and the used time."""
        return timestamp(max(wall_us + self.step_us, ahead_us + self.margin_us))


def timestamp(physical_us: int, logical: int = 0) -> int:
    """Return the hybrid timestamp of a wall time in microseconds and a logical count."""
    return physical_us << LOGICAL_BITS | logical


def physical_us(stamp: int) -> int:
    """Return the physical part of a hybrid timestamp, in microseconds since the Unix epoch."""
    return stamp >> LOGICAL_BITS


def first_ceiling(stored: int, clock: Clock, settings: ClockSettings) -> int:
    """Return the ceiling that has to be durable before a clock may start, given the stored one. ``ClockError``: that is
    so far ahead that every peer would refuse what this node gives out."""
    ahead_us = physical_us(stored) - (wall_us := clock.wall_us())
    if (excess_us := ahead_us - settings.ahead_us_max) > 0:
        raise ClockError(
            f"this node gave out timestamps {ahead_us // 1000} ms ahead of the machine's clock, at most "
            f"{settings.clock_error_ms_max} are allowed; if that clock is right by now, start this again in "
            f"{excess_us // 1_000_000 + 1} s, else set the machine's clock"
        )
    return settings.ceiling(wall_us, physical_us(stored))


class HybridClock:
    """One per node, used on the event loop only.

    Args:
        stored: the ceiling of the earlier run; timestamps begin above it.
        ceiling: what :func:`first_ceiling` said, durable already.
        save: makes later ones durable."""

    def __init__(self, clock: Clock, *, settings: ClockSettings, stored: int, ceiling: int, save: SaveCeiling) -> None:
        self._clock = clock
        self._settings = settings
        self._error_us = settings.error_us_max
        self._half_step_us, self._half_margin_us = settings.step_us // 2, settings.margin_us // 2
        self._save = save
        self._last = stored
        self._ceiling = ceiling
        self._saving = False
        self._retry_at_us = 0
        self._physical_us = clock.wall_us()
        self._monotonic_us = clock.monotonic_us()
        self.jumped_us = 0
        """How far the wall clock is from the believed time; 0 while it is believed."""

    @property
    def last(self) -> int:
        """The highest timestamp given out or observed."""
        return self._last

    @property
    def ceiling(self) -> int:
        """The durable ceiling."""
        return self._ceiling

    def now(self) -> int:
        """Return the next timestamp: above every one given out or observed before. ``ClockError``: all below the
        durable ceiling are used up: it could not be saved for long."""
        stamp = max(timestamp(self._read()), self._last + 1)
        self._reserve(physical_us(stamp))
        if stamp > self._ceiling:
            stamp = self._last + 1
            if stamp > self._ceiling:
                raise ClockError("the clock's ceiling cannot be raised: its file is not writable")
        self._last = stamp
        return stamp

    def observe(self, stamp: int) -> None:
        """Take note of a peer's timestamp: later ones of ours are above it. ``ClockError``: too far ahead, or above the
        durable ceiling, which is then raised. The clock has not moved."""
        peer_us = physical_us(stamp)
        if stamp <= self._last:
            if self.jumped_us < 0:
                self._return_to_wall(peer_us)
            return
        ahead_us = peer_us - self._read()
        if self.jumped_us > 0 and abs(ahead_us - self.jumped_us) <= self._error_us < ahead_us:
            # The wall time that we distrusted is borne out by a peer: adopt it.
            self._physical_us += self.jumped_us
            ahead_us -= self.jumped_us
            self.jumped_us = 0
        if ahead_us > self._error_us:
            raise ClockError(
                f"a timestamp {ahead_us // 1000} ms ahead of this node's clock; "
                f"at most {self._error_us // 1000} ms are accepted"
            )
        self._reserve(peer_us)
        if stamp > self._ceiling:
            raise ClockError("a timestamp above the clock's durable ceiling, which is being raised")
        self._last = stamp

    def keep_ahead(self) -> None:
        """Raise the ceiling if it is due: a message after a silence must not meet an old one."""
        self._reserve(max(self._read(), physical_us(self._last)))

    def _read(self) -> int:
        """Return believed wall time in microseconds."""
        wall, monotonic = self._clock.wall_us(), self._clock.monotonic_us()
        expected = self._physical_us + monotonic - self._monotonic_us
        off = wall - expected
        believed = abs(off) <= self._error_us
        self.jumped_us = 0 if believed else off
        self._physical_us, self._monotonic_us = wall if believed else expected, monotonic
        return self._physical_us

    def _return_to_wall(self, peer_us: int) -> None:
        """Believe a wall clock that was set back once a peer's timestamp bears it out: else a node that started ahead
        stays so, refused by its peers. Timestamps go on above the last one until time has caught up."""
        wall_us = self._clock.wall_us()
        if abs(wall_us - peer_us) <= self._error_us:
            self._physical_us, self._monotonic_us = wall_us, self._clock.monotonic_us()
            self.jumped_us = 0

    def _reserve(self, used_us: int) -> None:
        """Ask for a higher ceiling when half of what it was ahead is used up."""
        needed_us = max(self._physical_us + self._half_step_us, used_us + self._half_margin_us)
        enough = timestamp(needed_us) <= self._ceiling
        if self._saving or enough or self._monotonic_us < self._retry_at_us:
            return
        target = self._settings.ceiling(self._physical_us, used_us)
        self._saving = True

        def saved(result: object) -> None:
            self._saving = False
            if result is None:
                self._ceiling = max(self._ceiling, target)
            else:
                self._retry_at_us = self._clock.monotonic_us() + _RETRY_US

        self._save(target, saved)
