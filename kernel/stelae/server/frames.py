"""Reads the body of a request that has exactly one frame, as nearly all requests have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stelae.spi.errors import CallerError
from stelae.spi.services import Buffer


class RequestBody(Protocol):
    """What ``only_frame`` reads of a request (``stelae.wire.requests.Request``)."""

    kind: str
    body: Sequence[Buffer]


def only_frame(request: RequestBody) -> memoryview:
    """Return the only frame of a request's body.

    Raises:
        CallerError: the body has no frame, or more than one.
    """
    if len(request.body) != 1:
        raise CallerError(f"{request.kind} needs exactly one body frame, not {len(request.body)}")
    return memoryview(request.body[0])
