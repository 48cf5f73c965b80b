"""Joins the buffers of a group, so that one vectored write takes all of them."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.services import Buffer

BUFFERS_MAX = 1024
"""Number of buffers that one vectored write takes. More buffers would need several synchronous writes."""


def joined(buffers: Sequence[Buffer]) -> Sequence[Buffer]:
    """Return the same bytes in at most ``BUFFERS_MAX`` buffers."""
    share = -(-len(buffers) // BUFFERS_MAX)
    if share <= 1:
        return buffers
    return [b"".join(buffers[at : at + share]) for at in range(0, len(buffers), share)]


def between(buffers: Sequence[Buffer], begin: int, end: int) -> bytes:
    """Return a copy of the bytes from ``begin`` up to ``end`` of all buffers together. It is fast near the end."""
    found: list[Buffer] = []
    at = sum(map(len, buffers))
    for buffer in reversed(buffers):
        at -= len(buffer)
        found.append(memoryview(buffer)[max(0, begin - at) : max(0, end - at)])
        if at <= begin:
            break
    return b"".join(reversed(found))
