"""The hybrid clock: rising, below a durable ceiling, not dragged along, also across restarts."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.host.hybrid_clock import ClockSettings, HybridClock, first_ceiling, physical_us, timestamp
from stelae.spi.errors import ClockError, Full
from tests.at_length import times

EPOCH_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
SETTINGS = ClockSettings(clock_error_ms_max=10_000, ceiling_step_ms=4_000)


class Machine:
    """A machine's clocks and the one file on its disk, with saves that finish when they are told.

    ``durable`` is what a restart finds; ``given_max`` the highest timestamp any run gave out."""

    def __init__(self, wall_us: int = EPOCH_US) -> None:
        self.wall = wall_us
        self.monotonic = 0
        self.durable = 0
        self.given_max = 0
        self.pending: list[tuple[int, Callable[[object], None]]] = []
        self.saves = 0

    def wall_us(self) -> int:
        return self.wall

    def monotonic_us(self) -> int:
        return self.monotonic

    def pass_time(self, us: int) -> None:
        self.wall += us
        self.monotonic += us

    def save(self, ceiling: int, done: Callable[[object], None]) -> None:
        self.pending.append((ceiling, done))

    def finish(self, result: object = None) -> None:
        waiting, self.pending = self.pending, []
        for ceiling, done in waiting:
            self.saves += 1
            if result is None:
                self.durable = max(self.durable, ceiling)
            done(result)

    def start(self) -> HybridClock:
        stored = self.durable
        self.pending.clear()
        self.durable = first_ceiling(stored, self, SETTINGS)
        return HybridClock(self, settings=SETTINGS, stored=stored, ceiling=self.durable, save=self.save)

    def read(self, clock: HybridClock) -> int:
        stamp = clock.now()
        assert self.given_max < stamp <= self.durable
        self.given_max = stamp
        return stamp


def test_timestamps_follow_the_wall_clock() -> None:
    machine = Machine()
    clock = machine.start()
    machine.pass_time(5)
    assert machine.read(clock) == timestamp(EPOCH_US + 5)


def test_timestamps_of_one_microsecond_differ_in_the_logical_part() -> None:
    machine = Machine()
    clock = machine.start()
    first = machine.read(clock)
    assert machine.read(clock) == first + 1
    assert physical_us(first) == EPOCH_US


def test_a_running_node_never_waits_for_its_ceiling() -> None:
    machine = Machine()
    clock = machine.start()
    for _ in range(1000):
        machine.pass_time(100_000)
        stamp = machine.read(clock)
        machine.finish()
        assert physical_us(stamp) == machine.wall
    assert 40 <= machine.saves <= 60, "100 s, one save per half step of 4 s"


def test_while_a_save_is_late_time_goes_on_below_the_old_ceiling() -> None:
    machine = Machine()
    clock = machine.start()
    ceiling = machine.durable
    machine.pass_time(60 * SECOND_US)
    for _ in range(100):
        assert machine.read(clock) <= ceiling
    machine.finish()
    assert physical_us(machine.read(clock)) == machine.wall


def test_a_ceiling_is_not_used_before_its_save_has_finished() -> None:
    machine = Machine()
    clock = machine.start()
    ceiling = clock.ceiling
    machine.pass_time(3 * SECOND_US)
    machine.read(clock)
    assert machine.pending
    assert clock.ceiling == ceiling
    machine.finish()
    assert clock.ceiling == machine.durable > ceiling


def test_a_failed_save_is_repeated_but_not_at_once() -> None:
    machine = Machine()
    clock = machine.start()
    machine.pass_time(3 * SECOND_US)
    machine.read(clock)
    machine.finish(Full("no space"))
    machine.read(clock)
    assert not machine.pending
    machine.pass_time(SECOND_US)
    machine.read(clock)
    assert machine.pending


def test_used_up_timestamps_are_an_error_and_never_a_repetition() -> None:
    machine = Machine()
    clock = machine.start()
    clock.observe(clock.ceiling)
    with pytest.raises(ClockError, match="cannot be raised"):
        clock.now()


def test_a_restart_begins_above_everything_given_out_before() -> None:
    machine = Machine()
    for _ in range(20):
        clock = machine.start()
        for _ in range(3):
            machine.read(clock)
            machine.finish()
    machine.read(machine.start())


def test_a_node_that_restarts_every_second_stays_close_to_the_wall_clock() -> None:
    """Each start begins above the last ceiling: a whole step each time would run away."""
    machine = Machine()
    for _ in range(100):
        clock = machine.start()
        for _ in range(4):
            machine.pass_time(SECOND_US // 4)
            machine.read(clock)
            machine.finish()
    assert physical_us(machine.given_max) - machine.wall <= SETTINGS.step_us


def test_a_wall_clock_set_back_does_not_take_timestamps_back_across_a_restart() -> None:
    machine = Machine()
    machine.read(machine.start())
    machine.wall -= 5 * SECOND_US
    machine.read(machine.start())


def test_a_wall_clock_far_behind_the_stored_ceiling_is_refused_at_start() -> None:
    machine = Machine()
    machine.start()
    machine.wall -= 3600 * SECOND_US
    with pytest.raises(ClockError, match="set the machine's clock"):
        machine.start()


def test_a_node_that_ran_ahead_is_told_how_long_to_wait_if_the_clock_is_right_by_now() -> None:
    """Seconds with a clock an hour ahead shut a folder for an hour, and it was told to set a clock that was right."""
    machine = Machine()
    machine.start()
    machine.wall -= 3600 * SECOND_US
    with pytest.raises(ClockError, match="if the machine's clock is right") as refused:
        machine.start()
    told = re.search(r"start this node again in (\d+) s", str(refused.value))
    assert told is not None
    machine.wall += (int(told[1]) - 1) * SECOND_US - 1
    with pytest.raises(ClockError):
        machine.start()
    machine.wall += SECOND_US + 1
    machine.start()


def test_a_peers_timestamp_moves_the_clock() -> None:
    machine = Machine()
    clock = machine.start()
    ahead = timestamp(EPOCH_US + SECOND_US, 7)
    clock.observe(ahead)
    assert machine.read(clock) == ahead + 1


def test_an_older_timestamp_of_a_peer_changes_nothing() -> None:
    machine = Machine()
    clock = machine.start()
    stamp = machine.read(clock)
    clock.observe(stamp - 1)
    assert machine.read(clock) == stamp + 1


def test_a_timestamp_too_far_ahead_is_refused_before_the_clock_moves() -> None:
    machine = Machine()
    clock = machine.start()
    last = clock.last
    with pytest.raises(ClockError, match="at most 10000 ms"):
        clock.observe(timestamp(EPOCH_US + 10 * SECOND_US + 1))
    assert clock.last == last
    assert not machine.pending, "a refused timestamp must not raise the ceiling"
    assert machine.read(clock) == timestamp(EPOCH_US)


def test_a_timestamp_above_the_ceiling_is_refused_once_and_then_taken() -> None:
    machine = Machine()
    clock = machine.start()
    ahead = timestamp(EPOCH_US + 9 * SECOND_US)
    with pytest.raises(ClockError, match="being raised"):
        clock.observe(ahead)
    assert machine.read(clock) < ahead
    machine.finish()
    clock.observe(ahead)
    assert machine.read(clock) > ahead


@pytest.mark.parametrize("save_ms", [20, 300, 1_000, 1_900])
@pytest.mark.parametrize("ahead_s", [1, 5, 8])
def test_a_node_whose_clock_is_behind_hears_its_peers_however_slow_its_disk_is(ahead_s: int, save_ms: int) -> None:
    """The ceiling stayed behind the timestamps of the peers: each save was for one that had long passed."""
    machine = Machine()
    clock = machine.start()
    late_us: list[int] = []
    saved_at_us: int | None = None
    for _ in range(3_000):
        machine.pass_time(10_000)
        if machine.pending and saved_at_us is None:
            saved_at_us = machine.monotonic + save_ms * 1_000
        if saved_at_us is not None and machine.monotonic >= saved_at_us:
            saved_at_us = None
            machine.finish()
        try:
            clock.observe(timestamp(machine.wall + ahead_s * SECOND_US))
        except ClockError:
            late_us.append(machine.monotonic)
        assert clock.last <= machine.durable
    assert max(late_us, default=0) <= (SETTINGS.ceiling_step_ms + 3 * save_ms) * 1_000


@pytest.mark.parametrize("jump_us", [3600 * SECOND_US, -3600 * SECOND_US])
def test_after_a_jump_the_clock_goes_on_at_the_monotonic_pace(jump_us: int) -> None:
    machine = Machine()
    clock = machine.start()
    before = machine.read(clock)
    machine.wall += jump_us
    machine.pass_time(250)
    assert physical_us(machine.read(clock)) == physical_us(before) + 250
    assert clock.jumped_us == jump_us
    machine.wall -= jump_us
    machine.pass_time(250)
    assert physical_us(machine.read(clock)) == physical_us(before) + 500
    assert clock.jumped_us == 0


def test_a_small_step_of_the_wall_clock_is_followed() -> None:
    machine = Machine()
    clock = machine.start()
    machine.wall += SECOND_US
    assert physical_us(machine.read(clock)) == machine.wall


def test_a_jump_that_a_peer_bears_out_is_adopted() -> None:
    machine = Machine()
    clock = machine.start()
    machine.read(clock)
    machine.wall += 3600 * SECOND_US
    stamp = timestamp(machine.wall)
    with pytest.raises(ClockError, match="being raised"):
        clock.observe(stamp)
    machine.finish()
    clock.observe(stamp)
    assert machine.read(clock) == stamp + 1
    assert clock.jumped_us == 0


def test_a_jump_that_no_peer_bears_out_stays_disbelieved() -> None:
    machine = Machine()
    clock = machine.start()
    machine.read(clock)
    machine.wall += 3600 * SECOND_US
    with pytest.raises(ClockError, match="at most"):
        clock.observe(timestamp(EPOCH_US + 1800 * SECOND_US))
    assert physical_us(machine.read(clock)) == EPOCH_US


def test_a_clock_set_right_is_believed_again_once_a_peer_bears_it_out() -> None:
    """Found by simulation: a node that had started with its wall clock 22 s ahead went on ahead
    after the clock was set right, and its peers refused it until it was restarted."""
    machine = Machine(EPOCH_US + 22 * SECOND_US)
    clock = machine.start()
    last = machine.read(clock)
    machine.wall -= 22 * SECOND_US
    clock.observe(timestamp(machine.wall - 15 * SECOND_US))
    machine.read(clock)
    assert clock.jumped_us == -22 * SECOND_US
    clock.observe(timestamp(machine.wall))
    assert machine.read(clock) == last + 2
    machine.pass_time(23 * SECOND_US)
    machine.finish()
    assert physical_us(machine.read(clock)) == machine.wall


def test_an_idle_node_keeps_its_ceiling_ahead_for_the_first_message() -> None:
    machine = Machine()
    clock = machine.start()
    for _ in range(60):
        machine.pass_time(SECOND_US)
        clock.keep_ahead()
        machine.finish()
    clock.observe(timestamp(machine.wall + 100))
    assert clock.last == timestamp(machine.wall + 100)


@pytest.mark.parametrize("error_ms", [100, 1000, 10_000, 60_000])
def test_peers_accept_a_node_that_restarted(error_ms: int) -> None:
    """A restart begins at the old ceiling: that has to be within the error that peers allow."""
    assert ClockSettings(clock_error_ms_max=error_ms).step_us * 2 <= error_ms * 1000


Step = st.one_of(
    st.tuples(st.just("pass"), st.integers(0, 20 * SECOND_US)),
    st.tuples(st.just("jump"), st.integers(-30 * SECOND_US, 30 * SECOND_US)),
    st.tuples(st.just("now"), st.integers(1, 5)),
    st.tuples(st.just("observe"), st.integers(-20 * SECOND_US, 20 * SECOND_US)),
    st.tuples(st.just("finish"), st.booleans()),
    st.tuples(st.just("restart"), st.just(0)),
)


@settings(max_examples=times(300), deadline=None)
@given(st.lists(Step, max_size=60))
def test_nothing_makes_timestamps_repeat_go_back_or_pass_the_durable_ceiling(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    clock = machine.start()
    for step, amount in steps:
        if step == "pass":
            machine.pass_time(amount)
        elif step == "jump":
            machine.wall += amount
        elif step == "now":
            for _ in range(amount):
                machine.read(clock)
        elif step == "observe":
            _observe(clock, timestamp(max(0, machine.wall + amount)))
        elif step == "finish":
            machine.finish(Full("no space") if amount else None)
        else:
            clock = _restart(machine, clock)


def _observe(clock: HybridClock, stamp: int) -> None:
    last = clock.last
    try:
        clock.observe(stamp)
    except ClockError:
        assert clock.last == last
    else:
        assert max(last, stamp) == clock.last <= clock.ceiling


def _restart(machine: Machine, clock: HybridClock) -> HybridClock:
    try:
        return machine.start()
    except ClockError:
        return clock
