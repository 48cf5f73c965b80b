"""Waits for what other processes do, outside of an event loop."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Look at a condition again and again until it holds.

    Raises:
        AssertionError: it did not hold in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {timeout_s} s"
        time.sleep(0.02)
