"""Typed refusals, and how errors cross the wire.

An error travels as the fields ``code``, ``text`` and its own scalar attributes. The receiver gets
the same class back where it can act on it; any other code becomes ``RemoteError``, which keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from stelae.spi.errors import (
    CallerError,
    DeadlineExceeded,
    NotLeader,
    Overloaded,
    PayloadMismatch,
    PeerError,
    RetryableError,
    SchemaMismatch,
    StelaeError,
    TooLarge,
    TooOld,
    Unavailable,
    Unsupported,
)

Scalar: TypeAlias = str | int | float | bool | None
Fields: TypeAlias = Mapping[str, Scalar]

TEXT_LENGTH_MAX: Final = 1000
"""Characters of an error's text that travel; a refusal must stay small."""

_INTEGER_MAX: Final = 2**63 - 1


class Malformed(PeerError):
    """A message that cannot be read: header, types, lengths or frames do not fit."""

    code = "MALFORMED"


class WrongVersion(PeerError):
    """A message of another protocol version."""

    code = "WRONG_VERSION"


class WrongCluster(PeerError):
    """A message of another cluster, or of none."""

    code = "WRONG_CLUSTER"


class WrongRecipient(PeerError):
    """A message for another node, or for none: another node now has this address."""

    code = "WRONG_RECIPIENT"


class StaleRecipient(PeerError):
    """A message for an earlier run of this process."""

    code = "STALE_RECIPIENT"


class StaleSender(PeerError):
    """A message of an earlier run of its sender, or not of whom the connection belongs to."""

    code = "STALE_SENDER"


class HelloFirst(PeerError):
    """A message on a connection that has not said hello."""

    code = "HELLO_FIRST"


class UnknownKind(PeerError):
    """A message of a kind that nobody here serves."""

    code = "UNKNOWN_KIND"


class HandlerFailed(PeerError):
    """The service met an unexpected error; its log has the history."""

    code = "INTERNAL"


class RemoteError(PeerError):
    """An error whose class is not rebuilt here; ``remote_code`` names it."""

    code = "REMOTE"

    def __init__(self, remote_code: str, text: str) -> None:
        self.remote_code = remote_code
        super().__init__(f"{remote_code}: {text}")


BREAKS_LINK: Final = (
    WrongVersion,
    WrongCluster,
    WrongRecipient,
    StaleRecipient,
    StaleSender,
    HelloFirst,
)
"""Refusals that mean: this connection does not lead where it should, say hello on a new one."""

_PLAIN: Final[Mapping[str, Callable[[str], StelaeError]]] = {
    kind.code: kind
    for kind in (
        CallerError,
        SchemaMismatch,
        PayloadMismatch,
        Unsupported,
        RetryableError,
        Overloaded,
        Unavailable,
        DeadlineExceeded,
        PeerError,
        Malformed,
        WrongVersion,
        WrongCluster,
        WrongRecipient,
        StaleRecipient,
        StaleSender,
        HelloFirst,
        UnknownKind,
        HandlerFailed,
    )
}


def error_fields(error: StelaeError) -> dict[str, Scalar]:
    """Return the fields under which ``error`` crosses the wire."""
    fields: dict[str, Scalar] = {}
    for name, value in vars(error).items():
        if isinstance(value, str):
            fields[name] = value[:TEXT_LENGTH_MAX]
        elif value is None or (isinstance(value, int | float) and abs(value) <= _INTEGER_MAX):
            fields[name] = value
    fields["code"] = getattr(error, "remote_code", error.code)
    fields["text"] = str(error)[:TEXT_LENGTH_MAX]
    return fields


def error_of(fields: Fields | None) -> StelaeError:
    """Rebuild the error that a peer sent. Never raises, whatever the fields hold."""
    given: Fields = fields or {}
    code = str(given.get("code"))
    text = str(given.get("text"))
    plain = _PLAIN.get(code)
    if plain is not None:
        return plain(text)
    if code == NotLeader.code:
        leader = given.get("leader")
        return NotLeader(leader if isinstance(leader, str) else None, str(given.get("reason", "")))
    if code == TooOld.code:
        return TooOld(_integer(given, "floor"))
    if code == TooLarge.code:
        return TooLarge(
            "what was sent", _integer(given, "size_bytes"), _integer(given, "size_bytes_max")
        )
    return RemoteError(code, text)


def _integer(fields: Fields, name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0
