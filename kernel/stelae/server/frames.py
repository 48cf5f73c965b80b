"""The body of a request that has exactly one frame, as nearly all of them have."""

from __future__ import annotations

from stelae.spi.errors import CallerError
from stelae.wire.requests import Request


def only_frame(request: Request) -> memoryview:
    """Return the one frame of a request's body; ``CallerError``: it has none, or several."""
    if len(request.body) != 1:
        raise CallerError(f"{request.kind} has one body frame, not {len(request.body)}")
    return memoryview(request.body[0])
