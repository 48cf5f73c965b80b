"""The ring of this machine's system, for checks that need a real one."""

from __future__ import annotations

import pytest

from stelae.machine.fast_log.io_uring import IoUring


def ring_of_this_system(entries: int) -> IoUring:
    """Make a ring; where the system has none that this process may use, the check is printed as not proven here."""
    try:
        return IoUring(entries)
    except OSError as error:
        pytest.skip(f"not proven here: io_uring: {error}")
