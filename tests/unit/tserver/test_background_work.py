"""Work on a thread of its own: in order, little at a time, and its errors are raised."""

from __future__ import annotations

import threading

import pytest

from stelae.lifecycle.side_work import WAITING_MAX
from stelae.server.tserver.background_work import BackgroundWork
from stelae.spi.errors import Full


def test_work_in_the_background_is_in_order_and_little_and_its_errors_come_with_the_next_call() -> None:
    work, go, done = BackgroundWork(), threading.Event(), []
    for number in range(WAITING_MAX):
        work.begin(lambda number=number: (go.wait(10), done.append(number)))  # type: ignore[misc]
    beginner = threading.Thread(target=lambda: work.begin(lambda: done.append(WAITING_MAX)))
    beginner.start()
    beginner.join(0.05)
    assert beginner.is_alive() and done == [], "it waits for an earlier one"
    go.set()
    beginner.join(10)
    work.wait()
    assert done == list(range(WAITING_MAX + 1))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("copy-side-work")]
    work.begin(_fail)
    with pytest.raises(Full):
        work.wait()
    work.wait()
    work.begin(_fail)
    with pytest.raises(Full):
        for _ in range(WAITING_MAX):
            work.begin(lambda: None)
    work.wait()


def _fail() -> None:
    raise Full("no space")
