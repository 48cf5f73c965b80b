"""What a node serves: kinds of requests and of one-way messages, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from stelae.spi.errors import CallerError, PluginError
from stelae.wire.envelope import Parcel
from stelae.wire.parcels import HELLO, RESERVED_PREFIX
from stelae.wire.refusals import UnknownKind
from stelae.wire.requests import Message, Request
from stelae.wire.settings import Lane

RequestHandler: TypeAlias = Callable[[Request], None]
MessageHandler: TypeAlias = Callable[[Message], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One kind: exactly one of the handlers is set. ``lane`` is the one it must arrive on."""

    lane: Lane
    on_request: RequestHandler | None = None
    on_message: MessageHandler | None = None


class Services:
    """The kinds of a node."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}

    def add(self, kind: str, service: Service) -> None:
        """Register a kind.

        Raises:
            PluginError: the kind is taken, too long, or one of the messenger's own.
        """
        if kind in self._services:
            raise PluginError(f"message kind {kind!r} is registered twice")
        if kind == HELLO or kind.startswith(RESERVED_PREFIX) or not 0 < len(kind) <= 64:
            raise PluginError(
                f"message kind {kind!r} cannot be registered: 1 to 64 characters, "
                f"not {HELLO!r}, not beginning with {RESERVED_PREFIX!r}"
            )
        self._services[kind] = service

    def find(self, parcel: Parcel, lane: Lane, deadline_ms_max: int) -> Service:
        """Return who takes a parcel.

        Raises:
            UnknownKind: nobody does.
            CallerError: it came on the wrong lane, as a request where a one-way message is due or
                the other way round, or its deadline is missing or too far away.
        """
        service = self._services.get(parcel.kind)
        if service is None:
            raise UnknownKind(f"no service for messages of kind {parcel.kind!r} on this node")
        if service.lane is not lane:
            raise CallerError(f"{parcel.kind!r} travels on lane {service.lane.name}")
        if service.on_message is not None:
            if parcel.request_id:
                raise CallerError(f"{parcel.kind!r} is one-way and cannot be answered")
        elif not parcel.request_id:
            raise CallerError(f"{parcel.kind!r} is a request and needs a request id")
        elif not 0 < parcel.deadline_ms <= deadline_ms_max:
            raise CallerError(f"a request's deadline is from 1 to {deadline_ms_max} ms")
        return service
