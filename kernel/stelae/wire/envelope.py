"""The envelope: the first frame of every message, a JSON object.

It says who speaks for which cluster to whom, and lists the parcels of the message. It is read with
a typed decoder, so that a wrong type, an over-long id or a deep nest is refused while parsing, and
nothing behind this module meets an unchecked value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import orjson

from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import ClusterId, IncarnationId, NodeId, incarnation_id, node_id
from stelae.wire.refusals import (
    Malformed,
    Scalar,
    StaleRecipient,
    WrongCluster,
    WrongRecipient,
    WrongVersion,
)

PROTOCOL_VERSION: Final = 1
"""Version of the envelope and of the rules in this package; a peer of another one is refused."""

_INTEGER_MAX: Final = 2**63 - 1
_Text = Annotated[str, msgspec.Meta(max_length=64)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=_INTEGER_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a process is: clients have one too, with a node id drawn for the session.

    ``cluster_id`` may be empty for a process that learns it at its first hello.
    """

    cluster_id: ClusterId
    node_id: NodeId
    incarnation_id: IncarnationId


class Parcel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One request, reply or one-way message; ``lengths`` are those of its body frames, in bytes.

    ``deadline_ms`` is what remains of the caller's time at sending (0: a one-way message), so it
    means the same under two clocks. ``request_id`` is 0 for a one-way message.
    """

    kind: _Text
    request_id: _Natural
    deadline_ms: _Natural
    trace_id: _Text
    fields: dict[_Text, Scalar] | None
    lengths: list[_Natural]


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The header of one message. ``recipient`` and ``cluster_id`` are empty only in a hello.

    ``timestamp`` is the sender's hybrid time; ``credit`` the bytes it has consumed so far on this
    connection (see ``stelae.wire.credit``).
    """

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
    """Read a header.

    Raises:
        WrongVersion: another protocol version, whatever the rest looks like.
        Malformed: not JSON, a missing key, a wrong type, or a value out of bounds.
    """
    try:
        envelope = _decoder.decode(header)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        _refuse_other_version(header)
        raise Malformed(f"unreadable header: {error}") from error
    if envelope.protocol_version != PROTOCOL_VERSION:
        raise _wrong_version(envelope.protocol_version)
    return envelope


def encode_envelope(
    me: Identity,
    *,
    recipient: str,
    recipient_incarnation: str,
    timestamp: int,
    credit: int,
    parcels: list[tuple[object, ...]],
) -> bytes:
    """Write a header; ``parcels`` are tuples in the order of the fields of ``Parcel``."""
    return orjson.dumps(
        {
            "protocol_version": PROTOCOL_VERSION,
            "cluster_id": me.cluster_id,
            "sender": me.node_id,
            "sender_incarnation": me.incarnation_id,
            "recipient": recipient,
            "recipient_incarnation": recipient_incarnation,
            "timestamp": timestamp,
            "credit": credit,
            "parcels": parcels,
        }
    )


def check_addressee(envelope: Envelope, me: Identity) -> None:
    """Refuse what is not for this run of this node of this cluster.

    Raises:
        WrongCluster, WrongRecipient, StaleRecipient: as named, also when the id is missing.
    """
    if envelope.cluster_id != me.cluster_id:
        raise WrongCluster(
            f"message of cluster {envelope.cluster_id or '(none)'!r}; this is {me.cluster_id!r}"
        )
    if envelope.recipient != me.node_id:
        raise WrongRecipient(
            f"message for node {envelope.recipient or '(none)'}; this is {me.node_id}"
        )
    if envelope.recipient_incarnation != me.incarnation_id:
        raise StaleRecipient(
            f"message for run {envelope.recipient_incarnation or '(none)'} of this node; "
            f"this is {me.incarnation_id}: say hello again"
        )


def check_hello(envelope: Envelope, me: Identity) -> None:
    """Check a hello: cluster and recipient may be omitted, but not wrong; the sender must be real.

    Raises:
        WrongCluster, WrongRecipient: as named.
        Malformed: the sender's ids are not well formed, or are our own.
    """
    if envelope.cluster_id and me.cluster_id and envelope.cluster_id != me.cluster_id:
        raise WrongCluster(f"hello of cluster {envelope.cluster_id!r}; this is {me.cluster_id!r}")
    if envelope.recipient and envelope.recipient != me.node_id:
        raise WrongRecipient(f"hello for node {envelope.recipient}; this is {me.node_id}")
    try:
        node_id(envelope.sender)
        incarnation_id(envelope.sender_incarnation)
    except BadIdentifier as error:
        raise Malformed(str(error)) from error


def _refuse_other_version(header: bytes) -> None:
    try:
        version = _version_decoder.decode(header).protocol_version
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return
    if version != PROTOCOL_VERSION:
        raise _wrong_version(version)


def _wrong_version(version: int) -> WrongVersion:
    return WrongVersion(f"protocol version {version}; this node speaks {PROTOCOL_VERSION}")
