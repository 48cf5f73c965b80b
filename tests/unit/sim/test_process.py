"""A virtual process: its turns, pauses and end, and pools that keep the order of each key."""

from __future__ import annotations

import pytest

from stelae.sim.clock import EPOCH_US, VirtualClock
from stelae.sim.draw import stream
from stelae.sim.process import Process, VirtualPool
from stelae.sim.run import LIVENESS_US
from stelae.sim.scheduler import Scheduler
from stelae.spi.errors import Full


class Rig:
    """A process, and the calls that ran in it."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.clock = VirtualClock(self.scheduler, error_us=0)
        self.raised: list[BaseException] = []
        self.process = Process(self.scheduler, self.clock, "n0.1", self.raised.append)
        self.seen: list[str] = []

    def see(self, what: str) -> None:
        self.seen.append(what)

    def drain(self) -> list[str]:
        while self.scheduler.run_one():
            pass
        return self.seen


def test_deferred_calls_run_at_the_end_of_the_turn_and_links_flush_last() -> None:
    rig = Rig()

    def turn() -> None:
        rig.process.defer_last(lambda: rig.see("flush"))
        rig.process.defer(lambda: rig.process.defer(lambda: rig.see("nested")))
        rig.process.defer(lambda: rig.see("step"))
        rig.see("turn")

    rig.process.run(turn)
    assert rig.seen == ["turn", "step", "nested", "flush"]


def test_a_paused_process_runs_due_calls_after_the_pause_in_the_order_in_which_they_became_due() -> None:
    rig = Rig()
    for delay_us, name in ((20, "b"), (10, "a")):
        rig.process.schedule(delay_us, name, lambda name=name: rig.see(name))
    rig.process.pause()
    assert rig.drain() == []
    rig.process.resume()
    assert rig.drain() == ["a", "b"]


def test_an_ended_process_runs_nothing_any_more() -> None:
    rig = Rig()
    rig.process.schedule(10, "late", lambda: rig.see("late"))
    rig.process.end()
    rig.process.run(lambda: rig.see("now"))
    assert rig.drain() == []


def test_a_call_that_raises_ends_the_process_and_its_exception_is_reported() -> None:
    rig = Rig()
    error = KeyError("planted")

    def turn() -> None:
        rig.process.defer(lambda: rig.see("deferred"))
        raise error

    rig.process.run(turn)
    assert rig.raised == [error]
    assert not rig.process.alive
    assert rig.drain() == []


def test_timers_follow_the_nodes_own_monotonic_clock() -> None:
    rig = Rig()
    rig.scheduler.at(1_000, "start", rig.clock.start)
    rig.scheduler.run_one()
    rig.process.call_at(rig.process.now_us() + 50, lambda: rig.see(str(rig.scheduler.now_us)))
    assert rig.drain() == ["1050"]


def test_a_timer_that_was_due_while_the_process_was_paused_can_be_cancelled_until_it_runs() -> None:
    """A loop of asyncio does so. The simulator ran it, and a look at a session that had ended raised an error."""
    rig = Rig()
    now_us = rig.process.now_us()
    rig.process.call_at(now_us + 40, lambda: (rig.see("first"), cancelled.cancel()))
    cancelled = rig.process.call_at(now_us + 50, lambda: rig.see("cancelled"))
    rig.process.call_at(now_us + 60, lambda: rig.see("last"))
    rig.process.pause()
    rig.scheduler.at(70, "resume", rig.process.resume)
    assert rig.drain() == ["first", "last"]
    cancelled.cancel()


@pytest.mark.parametrize("drift_ppm", [-100_000, 0, 100_000])
def test_the_monotonic_clock_begins_anew_with_the_machine_and_not_with_a_process_on_it(drift_ppm: int) -> None:
    rig = Rig()
    clock = VirtualClock(rig.scheduler, error_us=0, drift_ppm=drift_ppm)
    began_us = clock.monotonic_us()
    rig.scheduler.at(1_000_000, "start", clock.start)
    rig.scheduler.run_one()
    killed_us = clock.monotonic_us()
    assert killed_us == began_us + 1_000_000 + drift_ppm
    clock.lose_power()
    rig.scheduler.at(2_000_000, "start", clock.start)
    rig.scheduler.run_one()
    assert 10_000_000 < clock.monotonic_us() < killed_us
    assert clock.true_delay_us(clock.monotonic_us()) == 0


def test_a_time_that_was_never_set_is_long_past() -> None:
    """Times that were never set are 0. If clocks began there, no run would show code that takes one for a moment."""
    assert VirtualClock(Scheduler(), error_us=0).monotonic_us() > LIVENESS_US


def test_jumps_of_a_wall_clock_can_be_undone_and_its_largest_lead_is_kept() -> None:
    clock = VirtualClock(Scheduler(), error_us=5)
    clock.jump(100)
    clock.jump(-40)
    assert (clock.wall_us(), clock.ahead_us_max) == (EPOCH_US + 65, 105)
    clock.undo_jumps()
    assert (clock.wall_us(), clock.ahead_us_max) == (EPOCH_US + 5, 105)


@pytest.mark.parametrize("seed", range(5))
def test_a_pool_keeps_order_per_key_and_an_error_is_a_result(seed: int) -> None:
    rig = Rig()
    pool = VirtualPool(rig.process, stream(seed, "pool"), "pool", lambda: (10, 500))

    def fail() -> None:
        raise Full("planted")

    pool.run("a", lambda: rig.see("a1"), lambda _: rig.see("a1 done"))
    pool.run("a", lambda: rig.see("a2"), lambda _: rig.see("a2 done"))
    pool.run("b", fail, lambda result: rig.see(type(result).__name__))
    seen = rig.drain()
    assert [what for what in seen if what[0] == "a"] == ["a1", "a1 done", "a2", "a2 done"]
    assert "Full" in seen
