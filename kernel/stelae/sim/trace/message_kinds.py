"""Sorts messages into the kinds of a trace, by their names on the wire."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from stelae.host.new_replica import NEW_REPLICA
from stelae.host.peer_traffic import BEAT, BEAT_ACK
from stelae.sim.trace.records import TraceKind

_ELECTION: Final = frozenset({"vote", "vote_reply", "timeout_now"})


def kind_of_transport(label: str) -> TraceKind:
    """Return the kind of a message that is not a consensus message: of a node, or of a client."""
    if label == NEW_REPLICA:
        return TraceKind.MESSAGE
    return TraceKind.HEARTBEAT if label in (BEAT, BEAT_ACK) else TraceKind.CLIENT


def kind_of_consensus(name: str, message: msgspec.Struct, entries: int) -> TraceKind:
    """Return the kind of a consensus message. Engines name their messages ``engine.message``.

    Args:
        name: the name of the message.
        message: the message, decoded.
        entries: the number of entries that it carries.
    """
    short = short_name(name)
    if short in _ELECTION:
        return TraceKind.VOTE
    if short == "append":
        return TraceKind.APPEND if entries else TraceKind.PROBE
    if short == "append_reply":
        return TraceKind.REPLY if getattr(message, "refusal", None) is None else TraceKind.REFUSAL
    return TraceKind.MESSAGE


def short_name(name: str) -> str:
    """Return the name of a message without the name of its engine."""
    return name.rpartition(".")[2]


def fields_of(message: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a message that differ from their defaults, as plain values."""
    required = len(message.__struct_fields__) - len(message.__struct_defaults__)
    defaults = (*(msgspec.NODEFAULT,) * required, *message.__struct_defaults__)
    named = zip(message.__struct_fields__, defaults, strict=True)
    return {name: _plain(value) for name, default in named if (value := getattr(message, name)) != default}


def _plain(value: object) -> Any:
    return msgspec.to_builtins(value)
