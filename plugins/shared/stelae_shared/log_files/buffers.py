"""A group in as few buffers as one vectored write takes."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.services import Buffer

BUFFERS_MAX = 1024
"""A vectored write takes no more; a longer one would be several, each of them synchronous."""


def joined(buffers: Sequence[Buffer]) -> Sequence[Buffer]:
    """The same bytes in as many buffers as one write takes."""
    share = -(-len(buffers) // BUFFERS_MAX)
    if share <= 1:
        return buffers
    return [b"".join(buffers[at : at + share]) for at in range(0, len(buffers), share)]


def between(buffers: Sequence[Buffer], begin: int, end: int) -> bytes:
    """A copy of the bytes from ``begin`` up to ``end`` of what the buffers hold together, quick near the end."""
    found: list[Buffer] = []
    at = sum(map(len, buffers))
    for buffer in reversed(buffers):
        at -= len(buffer)
        found.append(memoryview(buffer)[max(0, begin - at) : max(0, end - at)])
        if at <= begin:
            break
    return b"".join(reversed(found))
