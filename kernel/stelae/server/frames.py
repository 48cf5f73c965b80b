"""The body of a request that has exactly one frame, as nearly all of them have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stelae.spi.errors import CallerError
from stelae.spi.services import Buffer


class RequestBody(Protocol):
    """What is read of a request (``stelae.wire.requests.Request``)."""

    kind: str
    body: Sequence[Buffer]


def only_frame(request: RequestBody) -> memoryview:
    """Return the one frame of a request's body; ``CallerError``: it has none, or several."""
    if len(request.body) != 1:
        raise CallerError(f"{request.kind} has one body frame, not {len(request.body)}")
    return memoryview(request.body[0])
