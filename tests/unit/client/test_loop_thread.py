"""The loop in a thread: results and errors come back, and nothing waits for itself."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

import pytest

from stelae.client import Session, SessionOptions
from stelae.client.loop_thread import LoopThread
from stelae.client.session import AsyncSession
from stelae.spi.errors import Unavailable
from tests.unit.client.tablets import MemoryTable, one_column


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise KeyError("mine")


def test_results_and_errors_come_back() -> None:
    loop_thread = LoopThread()
    assert [loop_thread.run(double(n)) for n in range(3)] == [0, 2, 4]
    with pytest.raises(KeyError, match="mine"):
        loop_thread.run(fail())
    loop_thread.close()


def test_a_closed_loop_says_so_and_closing_twice_is_harmless() -> None:
    loop_thread = LoopThread()
    loop_thread.close()
    loop_thread.close()
    with pytest.raises(Unavailable, match="the client is closed"):
        loop_thread.run(double(1))


def test_closing_ends_calls_that_wait() -> None:
    loop_thread = LoopThread()
    said: list[BaseException] = []
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            loop_thread.run(for_ever())
        except Unavailable as error:
            said.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    begun.wait()
    loop_thread.close()
    thread.join()
    assert "closed during the call" in str(said[0])


class WatchedLock:
    """A lock that says that the main thread wants it."""

    def __init__(self, wanted: threading.Event) -> None:
        self._lock = threading.RLock()
        self._wanted = wanted

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._wanted.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_closing_ends_a_call_that_has_passed_the_check_and_is_not_on_the_loop_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its coroutine came to the loop behind those that were cancelled, and its thread waited for ever."""
    loop_thread, submit = LoopThread(), asyncio.run_coroutine_threadsafe
    checked, closing = threading.Event(), threading.Event()
    loop_thread._submitting = WatchedLock(closing)  # type: ignore[assignment]
    cancel_all, said = loop_thread._cancel_all, []

    def late(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
        if threading.current_thread() is caller:
            checked.set()
            closing.wait()
        return submit(work, loop)

    async def cancel_and_say() -> None:
        await cancel_all()
        closing.set()

    def call() -> None:
        with pytest.raises(Unavailable, match="closed during the call"):
            loop_thread.run(asyncio.sleep(3600))
        said.append("ended")

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", late)
    monkeypatch.setattr(loop_thread, "_cancel_all", cancel_and_say)
    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    checked.wait()
    loop_thread.close()
    caller.join(20)
    assert said == ["ended"]


def interrupted(monkeypatch: pytest.MonkeyPatch, loop_thread: LoopThread, at: int, *, finish: bool) -> None:
    """Let Ctrl-C come while the item ``at`` is waited for: before the loop has it, or after (``finish``)."""
    run, calls = loop_thread.run, itertools.count(1)

    def interrupt(work: Coroutine[Any, Any, Any]) -> Any:
        if next(calls) != at:
            return run(work)
        future = asyncio.run_coroutine_threadsafe(work, loop_thread.loop)
        if finish:
            future.result()
        future.cancel()
        raise KeyboardInterrupt

    monkeypatch.setattr(loop_thread, "run", interrupt)


def test_ctrl_c_ends_an_iteration_and_closes_its_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step was cancelled and not waited for, so that closing failed: a RuntimeError instead of the interrupt."""
    loop_thread, closed = LoopThread(), []

    async def items() -> AsyncGenerator[int, None]:
        try:
            yield 1
            task: asyncio.Task[None] = asyncio.create_task(asyncio.sleep(3600))
            await task
        finally:
            closed.append(True)

    seen = []
    interrupted(monkeypatch, loop_thread, 2, finish=False)
    with pytest.raises(KeyboardInterrupt):
        for item in loop_thread.each(items()):
            seen.append(item)
    assert (seen, closed) == ([1], [True])
    loop_thread.close()


@pytest.mark.parametrize(("at", "is_lost"), [(3, True), (4, False)])
def test_an_item_that_ctrl_c_keeps_from_the_caller_is_put_back(
    monkeypatch: pytest.MonkeyPatch, at: int, is_lost: bool
) -> None:
    loop_thread, seen, back = LoopThread(), [], []

    async def items() -> AsyncGenerator[int, None]:
        for number in range(3):
            yield number

    interrupted(monkeypatch, loop_thread, at, finish=True)
    with pytest.raises(KeyboardInterrupt):
        for item in loop_thread.each(items(), lambda: back.append(True)):
            seen.append(item)
    assert (seen, back) == (([0, 1], [True]) if is_lost else ([0, 1, 2], []))
    loop_thread.close()


def test_a_call_from_the_loops_own_thread_is_refused_instead_of_waiting_for_itself() -> None:
    loop_thread = LoopThread()

    async def inside() -> int:
        return loop_thread.run(double(1))

    with pytest.raises(Unavailable, match="wait for itself"):
        loop_thread.run(inside())
    loop_thread.close()


def test_a_fork_is_told_to_connect_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy of the loop has no thread: a call waited for ever, whatever its timeout."""
    loop_thread = LoopThread()
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    with pytest.raises(Unavailable, match="connect again in this process"):
        loop_thread.run(double(1))
    monkeypatch.undo()
    assert loop_thread.run(double(1)) == 2
    loop_thread.close()


def test_a_fork_cannot_add_rows_to_its_parents_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took them, and they were never sent: nothing reported that, if the fork ended without closing the session."""

    async def opened() -> tuple[MemoryTable, AsyncSession]:
        memory = MemoryTable(one_column("value", "int64"))
        return memory, memory.table.session(SessionOptions(auto_flush=False))

    loop_thread = LoopThread()
    memory, opened_session = loop_thread.run(opened())
    session, own = Session(loop_thread, opened_session), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    with pytest.raises(Unavailable, match="connect again in this process"):
        session.upsert((1, 1))
    monkeypatch.undo()
    session.upsert((2, 2))
    session.close()
    assert memory.held_rows() == [1]
    loop_thread.close()


def test_a_program_ends_that_leaves_a_generator_half_read() -> None:
    program = """
from stelae.client.loop_thread import LoopThread
loop_thread = LoopThread()
async def nothing(): pass
def rows():
    try:
        yield 1
    finally:
        if not loop_thread.closed:
            loop_thread.run(nothing())
kept = rows()
next(kept)
print("end of script", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end of script\n", "")
