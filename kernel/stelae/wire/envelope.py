"""The envelope: the first frame of every message, a JSON object, and the checks it must pass.

It says who speaks for which cluster to whom, and lists the parcels of the message. A typed decoder refuses a wrong
type, an over-long id or a deep nest while parsing, so nothing behind this module meets an unchecked value.

Hello, the first message on every connection, and its answer bind it to one run of one process and to a lane, and agree
on its window. Only there may recipient and cluster id be left out: first contact knows an address only."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import msgspec
import orjson

from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import ClusterId, IncarnationId, NodeId, incarnation_id, node_id
from stelae.wire.refusals import Malformed, Scalar, StaleRecipient, WrongCluster, WrongRecipient, WrongVersion
from stelae.wire.settings import INTEGER_MAX, Lane, WireSettings

PROTOCOL_VERSION: Final = 1  #: Of the envelope and of the rules in this package; a peer of another one is refused.


class Kind:
    """Kinds of parcels that are the messenger's own."""

    HELLO: Final = "hello"
    PING: Final = "wire.ping"
    PONG: Final = "wire.pong"
    CREDIT: Final = "wire.credit"
    CANCEL: Final = "wire.cancel"
    REFUSED: Final = "wire.refused"
    REPLY: Final = "wire.reply"
    ERROR: Final = "wire.error"
    RESERVED_PREFIX: Final = "wire."
    FREE: Final = frozenset({HELLO, PING, PONG, CREDIT, CANCEL, REFUSED})  #: Upkeep: no body, no credit.


_Text = Annotated[str, msgspec.Meta(max_length=64)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a process is. ``cluster_id`` may be empty: it is then learned at the first hello."""

    cluster_id: ClusterId
    node_id: NodeId
    incarnation_id: IncarnationId


class Parcel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request, reply or one-way message; ``lengths`` are of its body frames, in bytes. ``deadline_ms`` is what
    remained at sending, so it means the same under two clocks; it and ``request_id`` are 0 for a one-way message."""

    kind: _Text
    request_id: _Natural
    deadline_ms: _Natural
    trace_id: _Text
    fields: dict[_Text, Scalar] | None
    lengths: list[_Natural]


Row: TypeAlias = tuple[object, ...]  # a parcel to be written: the fields of ``Parcel`` in order


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The header of one message. ``recipient`` and ``cluster_id`` are empty only in a hello. ``timestamp`` is hybrid
    time; ``credit`` the bytes that the sender has consumed since hello."""

    protocol_version: int
    cluster_id: _Text
    sender: _Text
    sender_incarnation: _Text
    recipient: _Text
    recipient_incarnation: _Text
    timestamp: _Natural
    credit: _Natural
    parcels: list[Parcel]


class _VersionOnly(msgspec.Struct):
    protocol_version: int


_decoder: Final = msgspec.json.Decoder(Envelope)
_version_decoder: Final = msgspec.json.Decoder(_VersionOnly)


def decode_envelope(header: bytes) -> Envelope:
    """Read a header; ``WrongVersion``: of another protocol version, whatever the rest looks like. ``Malformed``: not
    JSON, a missing key, a wrong type, or a value out of bounds."""
    try:
        envelope = _decoder.decode(header)
    except _UNREADABLE as error:
        with suppress(*_UNREADABLE):
            _check_version(_version_decoder.decode(header).protocol_version)
        raise Malformed(f"unreadable header: {error}") from error
    _check_version(envelope.protocol_version)
    return envelope


def _check_version(version: int) -> None:
    if version != PROTOCOL_VERSION:
        raise WrongVersion(f"protocol version {version}; this node speaks {PROTOCOL_VERSION}")


def encode_envelope(
    me: Identity, *, recipient: str, run: str, timestamp: int, credit: int, parcels: list[Row]
) -> bytes:
    """Write a header for a run of a recipient."""
    return orjson.dumps(
        {
            "protocol_version": PROTOCOL_VERSION,
            "cluster_id": me.cluster_id,
            "sender": me.node_id,
            "sender_incarnation": me.incarnation_id,
            "recipient": recipient,
            "recipient_incarnation": run,
            "timestamp": timestamp,
            "credit": credit,
            "parcels": parcels,
        }
    )


def check_addressee(envelope: Envelope, me: Identity) -> None:
    """Raise ``WrongCluster``, ``WrongRecipient`` or ``StaleRecipient`` for what is not for this run of this node."""
    if envelope.cluster_id != me.cluster_id:
        raise WrongCluster(f"message of cluster {envelope.cluster_id!r}; this is {me.cluster_id!r}")
    if envelope.recipient != me.node_id:
        raise WrongRecipient(f"message for node {envelope.recipient!r}; this is {me.node_id}")
    if envelope.recipient_incarnation != me.incarnation_id:
        run = envelope.recipient_incarnation
        raise StaleRecipient(f"message for run {run!r}; this is {me.incarnation_id}: say hello")


def hello_fields(lane: Lane, settings: WireSettings) -> dict[str, Scalar]:
    """Return the fields of our hello for a lane."""
    return {"lane": int(lane), "window_bytes": settings.window_bytes(lane)}


def check_hello(envelope: Envelope, me: Identity, expected: NodeId | None) -> tuple[Lane, int]:
    """Return lane and window of a hello or its answer. ``WrongCluster``, ``WrongRecipient``: as named, or not of
    ``expected``, if known. ``Malformed``: ids, lane or window that cannot be, or other parcels beside it."""
    if envelope.cluster_id and me.cluster_id and envelope.cluster_id != me.cluster_id:
        raise WrongCluster(f"hello of cluster {envelope.cluster_id!r}; this is {me.cluster_id!r}")
    if envelope.recipient and envelope.recipient != me.node_id:
        raise WrongRecipient(f"hello for node {envelope.recipient}; this is {me.node_id}")
    try:
        node_id(envelope.sender)
        incarnation_id(envelope.sender_incarnation)
    except BadIdentifier as error:
        raise Malformed(str(error)) from error
    if expected is not None and envelope.sender != expected:
        raise WrongRecipient(f"expected node {expected}; {envelope.sender} answers here")
    if len(envelope.parcels) != 1 or envelope.parcels[0].kind != Kind.HELLO:
        raise Malformed("a hello travels alone")
    fields = envelope.parcels[0].fields or {}
    lane, window_bytes = fields.get("lane"), fields.get("window_bytes")
    if type(lane) is not int or lane not in (Lane.CONTROL, Lane.BULK):
        raise Malformed("a hello names its lane, 0 or 1")
    if type(window_bytes) is not int or window_bytes < 1:
        raise Malformed("a hello names its window in bytes")
    return Lane(lane), window_bytes
