"""Typed refusals, and how errors cross the wire.

An error travels as the fields ``code``, ``text`` and its own scalar attributes. The receiver gets
the same class back where it knows it; any other code becomes ``RemoteError``, which keeps it."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from stelae.spi.errors import CallerError, NotLeader, PeerError, RetryableError, StelaeError, TooLarge, TooOld
from stelae.wire.settings import INTEGER_MAX

Scalar: TypeAlias = str | int | float | bool | None
Fields: TypeAlias = Mapping[str, Scalar]

TEXT_LENGTH_MAX: Final = 1000  # characters that travel; a refusal must stay small


class Malformed(PeerError, code="MALFORMED"):
    """A message that cannot be read: header, types, lengths or frames do not fit."""


class Misdirected(PeerError, code="MISDIRECTED"):
    """A message on a connection that does not lead where it should: say hello on a new one."""


class WrongVersion(Misdirected, code="WRONG_VERSION"):
    """A message of another protocol version."""


class WrongCluster(Misdirected, code="WRONG_CLUSTER"):
    """A message of another cluster, or of none."""


class WrongRecipient(Misdirected, code="WRONG_RECIPIENT"):
    """A message for another node, or for none: another node now has this address."""


class StaleRecipient(Misdirected, code="STALE_RECIPIENT"):
    """A message for an earlier run of this process."""


class StaleSender(Misdirected, code="STALE_SENDER"):
    """A message of a run of its sender that a later one has superseded, or not of the peer of a link."""


class HelloFirst(Misdirected, code="HELLO_FIRST"):
    """A message on a connection that has not said hello."""


class UnknownKind(PeerError, code="UNKNOWN_KIND"):
    """A message of a kind that nobody here serves."""


class HandlerFailed(PeerError, code="INTERNAL"):
    """The service met an unexpected error; its log has the history."""


class RemoteError(PeerError, code="REMOTE"):
    """An error whose class is not rebuilt here; ``remote_code`` names it."""

    def __init__(self, remote_code: str, text: str) -> None:
        self.remote_code = remote_code
        super().__init__(f"{remote_code}: {text}")


def error_fields(error: StelaeError) -> dict[str, Scalar]:
    """Return the fields under which ``error`` crosses the wire."""
    fields: dict[str, Scalar] = {}
    for name, value in vars(error).items():
        if isinstance(value, str):
            fields[name] = value[:TEXT_LENGTH_MAX]
        elif value is None or (isinstance(value, int | float) and abs(value) <= INTEGER_MAX):
            fields[name] = value
    fields["code"] = getattr(error, "remote_code", error.code)
    fields["text"] = str(error)[:TEXT_LENGTH_MAX]
    return fields


def error_of(fields: Fields | None) -> StelaeError:
    """Rebuild the error that a peer sent. Never raises, whatever the fields hold."""
    given: Fields = fields or {}
    code, text = str(given.get("code")), str(given.get("text"))
    if code == NotLeader.code:
        leader = given.get("leader")
        return NotLeader(leader if isinstance(leader, str) else None, str(given.get("reason", "")))
    sizes = {name: value for name, value in given.items() if isinstance(value, int)}
    if code == TooOld.code:
        return TooOld(sizes.get("floor", 0))
    if code == TooLarge.code:
        return TooLarge("it", sizes.get("size_bytes", 0), sizes.get("size_bytes_max", 0))
    kind = StelaeError.by_code.get(code, RemoteError)
    if kind is not RemoteError and issubclass(kind, CallerError | RetryableError | PeerError):
        return kind.__new__(kind, text)  # as it was made there: its text is whole already
    return RemoteError(code, text)
