"""The envelope: the first frame of every packet, a JSON object, and the checks that it must pass.

It names the cluster, the sender and the recipient, and lists the messages of the packet. A typed decoder refuses a
wrong type, a too long id or deep nesting while it parses, so code behind this module never sees an unchecked value.

The first message on every connection is a hello. The hello and its answer bind the connection to one incarnation of one
process and to a lane, and agree on the credit window. Only a hello may omit recipient and cluster id, because at first
contact only the peer's address is known."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

import msgspec
import orjson

from stelae.spi.errors import BadIdentifier, ConfigError
from stelae.spi.ids import ClusterId, IncarnationId, NodeId, incarnation_id, node_id
from stelae.wire.addresses import split_address
from stelae.wire.refusals import Malformed, Scalar, StaleRecipient, WrongCluster, WrongRecipient, WrongVersion
from stelae.wire.settings import INTEGER_MAX, Lane, WireSettings

#: Version of the envelope and of the rules in this package. A peer with another version is refused. Like the versions
#: of files, it counts from the first release (ADR 82).
PROTOCOL_VERSION: Final = 1


class MessageKind:
    """The message kinds that the messenger itself uses. All other kinds belong to services."""

    HELLO: Final = "hello"
    PING: Final = "wire.ping"
    PONG: Final = "wire.pong"
    CREDIT: Final = "wire.credit"
    CANCEL: Final = "wire.cancel"
    REFUSED: Final = "wire.refused"
    REPLY: Final = "wire.reply"
    ERROR: Final = "wire.error"
    RESERVED_PREFIX: Final = "wire."
    #: Kinds that maintain the connection. They have no body and cost no credit.
    CREDIT_FREE: Final = frozenset({HELLO, PING, PONG, CREDIT, CANCEL, REFUSED})


_Text = Annotated[str, msgspec.Meta(max_length=64)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of a process."""

    #: Empty if the process has not joined a cluster yet. It is then learned at the first hello.
    cluster_id: ClusterId
    node_id: NodeId
    incarnation_id: IncarnationId


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request, answer or one-way message, as the envelope lists it. Its body is in the frames that follow."""

    kind: _Text
    #: 0 for a one-way message.
    request_id: _Natural
    #: The time that was left when the request was sent, so that the clocks of the two nodes need not agree. 0 for a
    #: one-way message.
    deadline_ms: _Natural
    trace_id: _Text
    fields: dict[_Text, Scalar] | None
    #: The lengths of the frames of its body, in bytes.
    lengths: list[_Natural]


#: A message to be written: the fields of ``Message``, in order.
EncodedMessage: TypeAlias = tuple[object, ...]


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The header of one packet. ``recipient`` and ``cluster_id`` are empty only in a hello."""

    protocol_version: int
    cluster_id: _Text
    sender: _Text
    sender_incarnation: _Text
    recipient: _Text
    recipient_incarnation: _Text
    #: A hybrid timestamp of the sender.
    timestamp: _Natural
    #: The credit bytes that the sender has consumed on this connection since the hello.
    credit: _Natural
    #: The messages of the packet, in order.
    messages: list[Message]


class _VersionOnly(msgspec.Struct):
    protocol_version: int


_decoder: Final = msgspec.json.Decoder(Envelope)
_version_decoder: Final = msgspec.json.Decoder(_VersionOnly)


def decode_envelope(header: bytes) -> Envelope:
    """Decode a packet's first frame.

    Raises ``WrongVersion`` for another protocol version, even if the rest cannot be decoded. Raises ``Malformed`` if
    the frame is not JSON, a key is missing, or a value has a wrong type or is out of bounds."""
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
        raise WrongVersion(f"the message has protocol version {version}; this node has {PROTOCOL_VERSION}")


def encode_envelope(
    me: Identity, *, recipient: str, incarnation: str, timestamp: int, credit: int, messages: list[EncodedMessage]
) -> bytes:
    """Encode the envelope of a packet to an incarnation of a recipient."""
    return orjson.dumps(
        {
            "protocol_version": PROTOCOL_VERSION,
            "cluster_id": me.cluster_id,
            "sender": me.node_id,
            "sender_incarnation": me.incarnation_id,
            "recipient": recipient,
            "recipient_incarnation": incarnation,
            "timestamp": timestamp,
            "credit": credit,
            "messages": messages,
        }
    )


def check_addressee(envelope: Envelope, me: Identity) -> None:
    """Check that a packet is for this cluster, this node and this incarnation of it.

    Raises ``WrongCluster``, ``WrongRecipient`` or ``StaleRecipient``."""
    if envelope.cluster_id != me.cluster_id:
        raise WrongCluster(f"message of cluster {envelope.cluster_id!r}; this is {me.cluster_id!r}")
    if envelope.recipient != me.node_id:
        raise WrongRecipient(f"message for node {envelope.recipient!r}; this is {me.node_id}")
    if envelope.recipient_incarnation != me.incarnation_id:
        meant = envelope.recipient_incarnation
        raise StaleRecipient(f"message for incarnation {meant!r}; this is {me.incarnation_id}: send a hello")


def hello_fields(lane: Lane, settings: WireSettings, address: str) -> dict[str, Scalar]:
    """Return the fields of this process's hello on a lane. ``address`` is where it listens; empty for a client."""
    return {"lane": int(lane), "window_bytes": settings.window_bytes(lane), "address": address}


def hello_address(envelope: Envelope) -> str:
    """Return where the sender of a hello listens, or an empty text.

    Raises ``Malformed`` if it is not ``host:port``."""
    address = (envelope.messages[0].fields or {}).get("address", "")
    try:
        if not isinstance(address, str):
            raise ConfigError(f"not a text: {address!r}")
        if address:
            split_address(address)
    except ConfigError as error:
        raise Malformed(f"the address in the hello is not usable: {error}") from error
    return address


def check_hello(envelope: Envelope, me: Identity, expected: NodeId | None) -> tuple[Lane, int]:
    """Check a hello or its answer. Return its lane and its credit window in bytes.

    Raises ``WrongCluster`` for another cluster, and ``WrongRecipient`` if it is for another node or its sender is not
    ``expected`` (if given). Raises ``Malformed`` if an id, the lane or the window is not valid, or the packet contains
    other messages."""
    if envelope.cluster_id and me.cluster_id and envelope.cluster_id != me.cluster_id:
        raise WrongCluster(
            f"the sender is a node of cluster {envelope.cluster_id!r}; this is {me.cluster_id!r}: check the addresses"
        )
    if envelope.recipient and envelope.recipient != me.node_id:
        raise WrongRecipient(f"hello for node {envelope.recipient}; this is {me.node_id}")
    try:
        node_id(envelope.sender)
        incarnation_id(envelope.sender_incarnation)
    except BadIdentifier as error:
        raise Malformed(str(error)) from error
    if expected is not None and envelope.sender != expected:
        raise WrongRecipient(f"expected node {expected}, but node {envelope.sender} answers at this address")
    if len(envelope.messages) != 1 or envelope.messages[0].kind != MessageKind.HELLO:
        raise Malformed("a hello must be the only message of its packet")
    fields = envelope.messages[0].fields or {}
    lane, window_bytes = fields.get("lane"), fields.get("window_bytes")
    if type(lane) is not int or lane not in (Lane.CONTROL, Lane.BULK):
        raise Malformed("a hello must name its lane, 0 or 1")
    if type(window_bytes) is not int or window_bytes < 1:
        raise Malformed("a hello must give its window in bytes")
    return Lane(lane), window_bytes
