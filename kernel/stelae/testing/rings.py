"""An io_uring ring of this machine, for tests that need a real one."""

from __future__ import annotations

import pytest

from stelae.machine.fast_log.io_uring import IoUring


def ring_of_this_system(entries: int) -> IoUring:
    """Make a ring; skip the test as not proven here if this process may not use io_uring."""
    try:
        return IoUring(entries)
    except OSError as error:
        pytest.skip(f"not proven here: io_uring: {error}")
