"""The node's hybrid clock: physical microseconds and a logical counter in one integer.

A timestamp is ``physical_us << 12 | logical``. The timestamps that a node gives out rise strictly, also across restarts
and whatever the wall clock does.

Ordering and durability
    1. No timestamp above the *durable ceiling* is ever given out. The ceiling is raised ahead of its use, off the event
       loop, in steps of ``ceiling_step_ms``. The next step is requested when half a step is left, so a running node
       does not wait for it. If a raise is late, timestamps rise in logical steps below the old ceiling.
    2. A new clock starts above the stored ceiling, and so above all timestamps that earlier incarnations gave out.
    3. A timestamp of a peer that is further ahead than ``clock_error_ms_max`` is refused, and the clock does not move.
       One above the durable ceiling is refused too, and the ceiling is raised, so that a retry succeeds. How far it is
       raised above the peer's follows how long the last save took.

Wall clocks that jump (behaviour D6)
    The wall clock is used while its readings agree with the monotonic clock to within ``clock_error_ms_max``. After a
    larger jump, forward or back, the clock continues from where it was, at the pace of the monotonic clock. It adopts
    the new wall time when a peer's timestamp confirms it, or at the next start."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from stelae.spi.errors import ClockError
from stelae.spi.services import Clock
from stelae.spi.settings import setting

LOGICAL_BITS = 12
"""Room for 4096 timestamps within one microsecond."""

SaveCeiling: TypeAlias = Callable[[int, Callable[[object], None]], None]
"""``save(ceiling, done)`` makes a ceiling durable off the loop, then calls ``done(None)`` or ``done(error)``."""

_RETRY_US = 100_000  #: The pause after a failed save of the ceiling, so that a full disk does not cause a busy loop.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSettings:
    """Section ``[clock]`` of ``node.toml``."""

    clock_error_ms_max: int = setting(
        10_000, unit="ms", low=100, high=3_600_000, reason="a peer further ahead is refused"
    )
    ceiling_step_ms: int = setting(
        4_000, unit="ms", low=20, high=600_000, reason="one small write of the clock per half step"
    )

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
        """``ceiling_step_ms`` in microseconds, limited so that peers accept the timestamps of a restarted node."""
        return min(self.ceiling_step_ms, self.clock_error_ms_max // 2) * 1000

    @property
    def margin_us(self) -> int:
        """The step in microseconds while timestamps are ahead of the wall clock.

        They then rise only by the logical part, and each restart moves the node ahead by at most this margin."""
        return self.step_us // 16

    def ceiling(self, wall_us: int, ahead_us: int, margin_us: int = 0) -> int:
        """Return the ceiling for the next step, given the wall time and the physical part of the last timestamp.

        ``margin_us`` replaces that of the settings if it is larger."""
        return timestamp(max(wall_us + self.step_us, ahead_us + max(self.margin_us, margin_us)))


def timestamp(physical_us: int, logical: int = 0) -> int:
    """Return the hybrid timestamp of a wall time in microseconds and a logical counter."""
    return physical_us << LOGICAL_BITS | logical


def physical_us(stamp: int) -> int:
    """Return the physical part of a hybrid timestamp, in microseconds since the Unix epoch."""
    return stamp >> LOGICAL_BITS


def first_ceiling(stored: int, clock: Clock, settings: ClockSettings) -> int:
    """Return the ceiling that must be durable before a clock starts, given the stored one.

    Raises ``ClockError`` if the stored ceiling is so far ahead that every peer would refuse this node's timestamps."""
    ahead_us = physical_us(stored) - (wall_us := clock.wall_us())
    if (excess_us := ahead_us - settings.ahead_us_max) > 0:
        raise ClockError(
            f"this node gave out timestamps {ahead_us // 1000} ms ahead of the machine's clock; at most "
            f"{settings.clock_error_ms_max} ms are allowed; if the machine's clock is right, start this node again in "
            f"{excess_us // 1_000_000 + 1} s; otherwise set the machine's clock"
        )
    return settings.ceiling(wall_us, physical_us(stored))


class HybridClock:
    """The hybrid clock of a node, used on the event loop only.

    Args:
        stored: the ceiling that the previous incarnation stored. Timestamps begin above it.
        ceiling: the result of :func:`first_ceiling`, which is durable already.
        save: makes later ceilings durable."""

    def __init__(self, clock: Clock, *, settings: ClockSettings, stored: int, ceiling: int, save: SaveCeiling) -> None:
        self._clock = clock
        self._settings = settings
        self._error_us = settings.error_us_max
        self._half_step_us, self._margin_us = settings.step_us // 2, settings.margin_us
        self._save = save
        self._last = stored
        self._ceiling = ceiling
        self._saving, self._retry_at_us = False, 0
        self._physical_us = clock.wall_us()
        self._monotonic_us = clock.monotonic_us()
        self.jumped_us = 0
        """How far the wall clock is from the time in use, in microseconds; 0 while the wall clock is used."""

    @property
    def last(self) -> int:
        """The highest timestamp given out or observed."""
        return self._last

    @property
    def ceiling(self) -> int:
        """The durable ceiling."""
        return self._ceiling

    def now(self) -> int:
        """Return the next timestamp, which is above all that were given out or observed before.

        Raises ``ClockError`` if all timestamps below the durable ceiling are used up, because no higher ceiling could
        be saved for long."""
        stamp = max(timestamp(self._read()), self._last + 1)
        self._reserve(physical_us(stamp))
        if stamp > self._ceiling:
            stamp = self._last + 1
            if stamp > self._ceiling:
                raise ClockError("the clock's ceiling cannot be raised: its file is not writable")
        self._last = stamp
        return stamp

    def observe(self, stamp: int) -> None:
        """Observe a peer's timestamp: later timestamps of this clock are above it.

        Raises ``ClockError``, and the clock does not move, if it is too far ahead, or above the durable ceiling. In the
        second case the ceiling is raised."""
        peer_us = physical_us(stamp)
        if stamp <= self._last:
            if self.jumped_us < 0:
                self._return_to_wall(peer_us)
            return
        ahead_us = peer_us - self._read()
        if self.jumped_us > 0 and abs(ahead_us - self.jumped_us) <= self._error_us < ahead_us:
            # A peer confirms the wall time after the jump: use it again.
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
        """Raise the ceiling if it is due, so that the first message after a silence is not above an old ceiling."""
        self._reserve(max(self._read(), physical_us(self._last)))

    def _read(self) -> int:
        """Return the physical time in use, in microseconds."""
        wall, monotonic = self._clock.wall_us(), self._clock.monotonic_us()
        expected = self._physical_us + monotonic - self._monotonic_us
        off = wall - expected
        believed = abs(off) <= self._error_us
        self.jumped_us = 0 if believed else off
        self._physical_us, self._monotonic_us = wall if believed else expected, monotonic
        return self._physical_us

    def _return_to_wall(self, peer_us: int) -> None:
        """Use a wall clock that was set back, if a peer's timestamp confirms it.

        Otherwise a node that started ahead would stay ahead, and its peers would refuse it. Timestamps still rise above
        the last one until the time has caught up."""
        wall_us = self._clock.wall_us()
        if abs(wall_us - peer_us) <= self._error_us:
            self._physical_us, self._monotonic_us = wall_us, self._clock.monotonic_us()
            self.jumped_us = 0

    def _reserve(self, used_us: int) -> None:
        """Request a higher ceiling when half of the distance to it is used up."""
        needed_us = max(self._physical_us + self._half_step_us, used_us + self._margin_us // 2)
        enough = timestamp(needed_us) <= self._ceiling
        if self._saving or enough or self._monotonic_us < self._retry_at_us:
            return
        target = self._settings.ceiling(self._physical_us, used_us, self._margin_us)
        self._saving, begun_us = True, self._monotonic_us

        def saved(result: object) -> None:
            self._saving, took_us = False, self._clock.monotonic_us() - begun_us
            # Peers that are ahead go on during a save. With a margin of less than two saves, all would be refused.
            self._margin_us = max(self._settings.margin_us, min(3 * took_us, self._settings.step_us))
            if result is None:
                self._ceiling = max(self._ceiling, target)
            else:
                self._retry_at_us = self._clock.monotonic_us() + _RETRY_US

        self._save(target, saved)
