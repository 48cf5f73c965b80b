"""Hello: the first message on every connection, and its answer.

It binds a connection to one run of one process and to a lane, and agrees on the window of its
credit. Only here may recipient and cluster id be left out, since first contact knows an address
only. Both sides say who they are; everything after it is checked against that.
"""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.ids import NodeId
from stelae.wire.common import Common
from stelae.wire.envelope import Envelope, Parcel, check_hello
from stelae.wire.parcels import HELLO
from stelae.wire.refusals import Malformed, Scalar, WrongRecipient
from stelae.wire.settings import Lane, WireSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What a hello says beside the envelope. ``window_bytes`` is what its sender will take."""

    lane: Lane
    window_bytes: int


def hello_fields(lane: Lane, settings: WireSettings) -> dict[str, Scalar]:
    """Return the fields of our hello for a lane."""
    return {"lane": int(lane), "window_bytes": settings.window_bytes(lane)}


def read_greeting(
    envelope: Envelope, parcel: Parcel, common: Common, *, expected: NodeId | None
) -> Greeting:
    """Check a hello or its answer; ``expected`` is who should have sent it, if that is known.

    Raises:
        WrongCluster, WrongRecipient: as named, or somebody else lives at the address.
        Malformed: ids, lane or window that cannot be, or other parcels beside the hello.
    """
    check_hello(envelope, common.identity)
    if expected is not None and envelope.sender != expected:
        raise WrongRecipient(f"expected node {expected}; {envelope.sender} answers here")
    if len(envelope.parcels) != 1 or parcel.kind != HELLO:
        raise Malformed("a hello travels alone")
    fields = parcel.fields or {}
    lane, window_bytes = fields.get("lane"), fields.get("window_bytes")
    if type(lane) is not int or lane not in (Lane.CONTROL, Lane.BULK):
        raise Malformed("a hello names its lane, 0 or 1")
    if type(window_bytes) is not int or window_bytes < 1:
        raise Malformed("a hello names its window in bytes")
    return Greeting(lane=Lane(lane), window_bytes=window_bytes)
