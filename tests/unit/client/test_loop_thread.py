"""The loop in a thread: results and errors come back, and nothing waits for itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from stelae.client.loop_thread import LoopThread
from stelae.spi.errors import Unavailable


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise KeyError("mine")


def test_results_and_errors_come_back() -> None:
    portal = LoopThread()
    assert [portal.run(double(n)) for n in range(3)] == [0, 2, 4]
    with pytest.raises(KeyError, match="mine"):
        portal.run(fail())
    portal.close()


def test_a_closed_portal_says_so_and_closing_twice_is_harmless() -> None:
    portal = LoopThread()
    portal.close()
    portal.close()
    with pytest.raises(Unavailable, match="the client is closed"):
        portal.run(double(1))


def test_closing_ends_calls_that_wait() -> None:
    portal = LoopThread()
    said: list[BaseException] = []
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            portal.run(for_ever())
        except Unavailable as error:
            said.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    begun.wait()
    portal.close()
    thread.join()
    assert "closed meanwhile" in str(said[0])


def test_a_call_from_the_loops_own_thread_is_refused_instead_of_waiting_for_itself() -> None:
    portal = LoopThread()

    async def inside() -> int:
        return portal.run(double(1))

    with pytest.raises(Unavailable, match="wait for itself"):
        portal.run(inside())
    portal.close()


def test_a_fork_is_told_to_connect_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy of the loop has no thread: a call waited for ever, whatever its timeout."""
    portal = LoopThread()
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    with pytest.raises(Unavailable, match="connect again here"):
        portal.run(double(1))
    monkeypatch.undo()
    assert portal.run(double(1)) == 2
    portal.close()


def test_a_program_ends_that_leaves_a_generator_half_read() -> None:
    program = """
from stelae.client.loop_thread import LoopThread
portal = LoopThread()
async def nothing(): pass
def rows():
    try:
        yield 1
    finally:
        if not portal.closed:
            portal.run(nothing())
kept = rows()
next(kept)
print("end of script", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end of script\n", "")
