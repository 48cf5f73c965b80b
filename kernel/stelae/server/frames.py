"""Reads the body of a request that has exactly one frame, as nearly all requests have."""

from __future__ import annotations

from stelae.spi.errors import CallerError
from stelae.wire.requests import Request


def only_frame(request: Request) -> memoryview:
    """Return the only frame of a request's body.

    Raises:
        CallerError: the body has no frame, or more than one.
    """
    if len(request.body) != 1:
        raise CallerError(f"{request.kind} needs exactly one body frame, not {len(request.body)}")
    return memoryview(request.body[0])
