"""How long a client waits for the answers to its requests."""

from __future__ import annotations

import asyncio

from stelae.wire.settings import WireSettings

CALL_MS = 2_000
"""Deadline of one request to a node, in milliseconds, or of the first attempt of one that is repeated."""

ATTEMPT_MS_MAX = 300_000
"""The longest deadline of one attempt, in milliseconds. Each attempt without an answer doubles that of the next one: a
page of a busy node may take longer than ``CALL_MS``, and would then be read again and again in vain."""

LAST_ATTEMPT_MS = 200
"""The shortest deadline of an attempt, in milliseconds. So a call ends at most this long after its timeout, and one
whose time is over when it begins still reaches a node that answers soon."""

ASK_MS_MAX = WireSettings().deadline_ms_max
"""The longest deadline of any request, in milliseconds."""

TRANSFER_MS = 30_000
"""Deadline of a transfer of leadership, in milliseconds."""

TIMEOUT_S = 30.0
"""Time for which a call is retried by default, in seconds."""


def left_ms(deadline: float) -> int:
    """Return the milliseconds until a deadline, by the clock of the running loop, and at least ``LAST_ATTEMPT_MS``."""
    return max(LAST_ATTEMPT_MS, int((deadline - asyncio.get_running_loop().time()) * 1000))
