"""The worker pool and the machine's clocks."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable

import pytest

from stelae.machine.system_clock import SystemClock
from stelae.machine.workers import WorkerPool
from stelae.spi.errors import Overloaded, Unavailable


class Loop:
    """A stand-in for the event loop: what was posted is run by the test, in order."""

    def __init__(self) -> None:
        self.posted: queue.Queue[Callable[[], None]] = queue.Queue()

    def run(self, count: int) -> None:
        for _ in range(count):
            self.posted.get(timeout=10)()


def test_the_result_arrives_on_the_loop() -> None:
    loop, heard = Loop(), list[tuple[object, bool]]()
    pool = WorkerPool(2, "test", loop.posted.put)
    here = threading.get_ident()
    pool.submit(threading.get_ident, lambda there: heard.append((there, threading.get_ident() == here)))
    loop.run(1)
    pool.close()
    assert heard[0][0] != here
    assert heard[0][1] is True


def test_what_work_raises_is_its_result() -> None:
    loop, heard = Loop(), list[object]()
    pool = WorkerPool(1, "test", loop.posted.put)
    pool.submit(lambda: 1 // 0, heard.append)
    loop.run(1)
    pool.close()
    assert isinstance(heard[0], ZeroDivisionError)


def test_failed_work_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pool = WorkerPool(1, "test", Loop().posted.put)
    pool.submit(lambda: 1 // 0)
    pool.close()
    assert "background work failed" in caplog.text


def test_work_waits_for_a_thread_of_the_pool_when_the_system_allows_no_further_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call raised in the turn of a replica, which failed; later work of its key waited for ever."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    loop, heard, gate = Loop(), list[object](), threading.Event()
    pool = WorkerPool(2, "test", loop.posted.put)
    pool.run("first", gate.wait, heard.append)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool.run("key", lambda: 1, heard.append)
    pool.run("key", lambda: 2, heard.append)
    pool.submit(lambda: 3, heard.append)
    gate.set()
    loop.run(4)
    assert heard == [True, 1, 2, 3] and not pool.waiting
    pool.close()


def test_a_full_queue_answers_overloaded_and_takes_work_again_later() -> None:
    loop, heard, gate = Loop(), list[object](), threading.Event()
    pool = WorkerPool(1, "test", loop.posted.put, queue_count_max=2)
    for _ in range(3):
        pool.submit(gate.wait, heard.append)
    loop.run(1)
    assert isinstance(heard[0], Overloaded)
    gate.set()
    loop.run(2)
    pool.submit(lambda: "again", heard.append)
    loop.run(1)
    pool.close()
    assert heard[1:] == [True, True, "again"]


def test_close_finishes_what_was_taken_and_refuses_the_rest() -> None:
    loop, heard = Loop(), list[object]()
    pool = WorkerPool(1, "test", loop.posted.put)
    for number in range(5):
        pool.submit(lambda number=number: number, heard.append)
    pool.close()
    pool.close()
    pool.submit(lambda: "late", heard.append)
    loop.run(6)
    assert heard[:5] == [0, 1, 2, 3, 4]
    assert isinstance(heard[5], Unavailable)


def test_work_of_one_key_runs_in_order_and_never_side_by_side() -> None:
    loop, heard, running = Loop(), list[int](), list[int]()
    pool = WorkerPool(4, "test", loop.posted.put)

    def work(number: int) -> int:
        running.append(number)
        beside = len(running)
        running.remove(number)
        return number if beside == 1 else -number

    for number in range(200):
        pool.run("key", lambda number=number: work(number), heard.append)
    loop.run(200)
    pool.close()
    assert heard == list(range(200))


def test_work_of_another_key_does_not_wait() -> None:
    loop, heard, gate = Loop(), list[object](), threading.Event()
    pool = WorkerPool(2, "test", loop.posted.put)
    pool.run("slow", lambda: gate.wait(10), heard.append)
    pool.run("slow", lambda: "behind", heard.append)
    pool.run("quick", lambda: "beside", heard.append)
    loop.run(1)
    gate.set()
    loop.run(2)
    pool.close()
    assert heard == ["beside", True, "behind"]


def test_a_key_goes_on_after_work_that_raised() -> None:
    loop, heard = Loop(), list[object]()
    pool = WorkerPool(1, "test", loop.posted.put)
    pool.run("key", lambda: 1 // 0, heard.append)
    pool.run("key", lambda: "next", heard.append)
    loop.run(2)
    pool.run("key", lambda: "later", heard.append)
    loop.run(1)
    pool.close()
    assert isinstance(heard[0], ZeroDivisionError)
    assert heard[1:] == ["next", "later"]


def test_work_that_wants_to_end_the_process_has_failed_like_other_work() -> None:
    """A policy that called ``sys.exit`` left its key taken: the master never planned again, and logged nothing."""
    loop, heard = Loop(), list[object]()
    pool = WorkerPool(1, "test", loop.posted.put)
    pool.run("key", lambda: sys.exit(4), heard.append)
    pool.run("key", lambda: "next", heard.append)
    pool.submit(lambda: sys.exit(5), heard.append)
    loop.run(3)
    pool.close()
    assert [str(found) for found in heard] == ["the work raised SystemExit(4)", "next", "the work raised SystemExit(5)"]
    assert isinstance(heard[0], RuntimeError)
    assert pool.waiting == 0


def test_close_names_the_work_for_which_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    """With a policy whose plan never ended, a master did not stop, and its log did not say why."""
    begun, gate = threading.Event(), threading.Event()
    pool = WorkerPool(1, "scan", lambda call: None)
    pool.run("master/policy", lambda: (begun.set(), gate.wait(10)), lambda result: None)
    pool.submit(lambda: None)
    assert begun.wait(10)
    caplog.handler.addFilter(lambda record: (gate.set(), True)[1])
    with caplog.at_level(logging.INFO):
        pool.close()
    assert "after the work of its pool scan: 1 of master/policy, 1 of engines" in caplog.text


def test_close_finishes_what_waits_behind_a_key_and_refuses_the_rest() -> None:
    loop, heard = Loop(), list[object]()
    pool = WorkerPool(1, "test", loop.posted.put)
    for number in range(5):
        pool.run("key", lambda number=number: number, heard.append)
    pool.close()
    pool.run("key", lambda: "late", heard.append)
    loop.run(6)
    assert heard[:5] == [0, 1, 2, 3, 4]
    assert isinstance(heard[5], Unavailable)


def test_the_systems_monotonic_clock_does_not_go_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_us() for _ in range(1000)]
    assert readings == sorted(readings)


def test_the_wall_clock_counts_microseconds_since_1970() -> None:
    assert 1_700_000_000_000_000 < SystemClock().wall_us() < 4_000_000_000_000_000
