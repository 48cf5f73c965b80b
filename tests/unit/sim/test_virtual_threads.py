"""Code that blocks runs in virtual time: it waits for the loop, for a queue and for the end of its process."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from queue import Empty

import pytest

from stelae.sim.clock import VirtualClock
from stelae.sim.hosting.virtual_threads import ThreadedPool, VirtualCalls, VirtualThreads
from stelae.sim.process import Process
from stelae.sim.scheduler import Scheduler
from stelae.spi.errors import StorageError, Unavailable


class Rig:
    """One process with virtual threads. ``done`` has the results of what ended."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.raised: list[BaseException] = []
        self.process = Process(self.scheduler, VirtualClock(self.scheduler, error_us=0), "p", self.raised.append)
        self.threads = VirtualThreads(self.process)
        self.calls = VirtualCalls(self.process, self.threads)
        self.done: list[object] = []

    def run(self, *works: Callable[[], object]) -> None:
        """Run pieces of work on threads, until nothing is due any more."""
        for work in works:
            self.process.run(lambda work=work: self.threads.run(work, self.done.append))  # type: ignore[misc]
        self.settle()

    def answer_after(self, us: int, done: Callable[[object], None]) -> None:
        """Answer a call after some time of the loop."""
        self.process.call_at(self.process.now_us() + us, lambda: done(None))

    def settle(self) -> None:
        while self.scheduler.run_one():
            pass


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_work_that_blocks_nowhere_has_ended_when_the_turn_goes_on(rig: Rig) -> None:
    rig.run(lambda: 7)
    assert rig.done == [7] and rig.scheduler.now_us == 0


def test_a_call_runs_on_the_loop_and_its_result_comes_back_later(rig: Rig) -> None:
    def begin(done: Callable[[object], None]) -> None:
        rig.process.call_at(rig.process.now_us() + 1_000, lambda: done("late"))

    rig.run(lambda: rig.calls.call(begin))
    assert rig.done == ["late"]
    assert rig.scheduler.now_us >= 1_000


def test_a_call_that_is_answered_with_an_error_raises_it(rig: Rig) -> None:
    rig.run(lambda: rig.calls.call(lambda done: done(StorageError("broken"))))
    assert isinstance(rig.done[0], StorageError)


def test_a_call_that_is_never_answered_ends_and_a_late_answer_is_discarded(rig: Rig) -> None:
    waiting: list[Callable[[object], None]] = []
    discarded: list[object] = []
    rig.run(lambda: rig.calls.call(waiting.append, discarded.append))
    assert isinstance(rig.done[0], Unavailable)
    rig.process.run(lambda: waiting[0]("too late"))
    assert discarded == ["too late"] and len(rig.done) == 1


def test_two_threads_wait_at_the_same_time_and_go_on_in_the_order_of_their_events(rig: Rig) -> None:
    def wait(us: int) -> int:
        rig.calls.call(partial(rig.answer_after, us))
        return us

    rig.run(lambda: wait(3_000), lambda: wait(2_000))
    assert rig.done == [2_000, 3_000]


def test_a_queue_wakes_the_thread_that_waits_or_is_empty_at_the_end_of_the_time(rig: Rig) -> None:
    queue = rig.calls.queue()

    def work() -> list[object]:
        with pytest.raises(Empty):
            queue.get(timeout=0.5)
        return [queue.get(timeout=10.0), queue.get(timeout=10.0)]

    for item in "ab":
        rig.process.call_at(rig.process.now_us() + 2_000_000, partial(queue.put, item))
    rig.run(work)
    assert rig.done == [["a", "b"]]


def test_what_is_no_error_of_a_disk_or_a_peer_ends_the_process(rig: Rig) -> None:
    def defect() -> None:
        raise AssertionError("a defect")

    rig.run(defect)
    assert [type(raised) for raised in rig.raised] == [AssertionError] and not rig.process.alive


def test_the_threads_of_a_process_that_ends_are_unwound_and_report_nothing(rig: Rig) -> None:
    left: list[str] = []

    def work() -> None:
        try:
            rig.calls.call(lambda _done: None)
        finally:
            left.append("unwound")
            rig.calls.post(lambda: left.append("never"))

    rig.process.run(lambda: rig.threads.run(work, rig.done.append))
    rig.process.end()
    rig.settle()
    assert left == ["unwound"] and not rig.done


def test_a_pool_keeps_the_order_of_a_key_while_its_work_blocks(rig: Rig) -> None:
    pool = ThreadedPool(rig.process, rig.threads, random.Random(1), "pool", lambda: (5, 5))
    order: list[str] = []

    def slow() -> str:
        rig.calls.call(partial(rig.answer_after, 9_000))
        order.append("slow")
        return "slow"

    pool.run("k", slow, rig.done.append)
    pool.run("k", lambda: order.append("after"), rig.done.append)
    pool.submit(lambda: order.append("alone"))
    rig.settle()
    assert order == ["alone", "slow", "after"]
