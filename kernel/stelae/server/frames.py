"""The frames of answers and of requests. Nearly all requests have exactly one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from stelae.spi.errors import CallerError
from stelae.spi.services import Buffer

Frames: TypeAlias = list[Buffer]
"""The frames of an answer."""


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
