"""The errors with which packets and messages are refused, and the encoding of errors on the wire.

An error is sent as the fields ``code``, ``text`` and its own scalar attributes. The receiver rebuilds an error of the
same class if it knows the code. Any other code becomes a ``RemoteError``, which keeps the code."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from stelae.spi.errors import CallerError, NotLeader, PeerError, RetryableError, StelaeError, TooLarge, TooOld
from stelae.wire.settings import INTEGER_MAX

Scalar: TypeAlias = str | int | float | bool | None
Fields: TypeAlias = Mapping[str, Scalar]

#: Characters of a text that are sent, so that refusals stay small.
TEXT_LENGTH_MAX: Final = 1000


class Malformed(PeerError, code="MALFORMED"):
    """A packet that cannot be decoded: its envelope, a type, a length or a frame is wrong."""


class Misdirected(PeerError, code="MISDIRECTED"):
    """A packet on a connection between the wrong two processes. The sender must connect and send a hello again."""


class WrongVersion(Misdirected, code="WRONG_VERSION"):
    """A packet with another protocol version."""


class WrongCluster(Misdirected, code="WRONG_CLUSTER"):
    """A packet of another cluster, or without a cluster id."""


class WrongRecipient(Misdirected, code="WRONG_RECIPIENT"):
    """A packet for another node, or without a recipient. Another node now has this address."""


class StaleRecipient(Misdirected, code="STALE_RECIPIENT"):
    """A packet for an earlier incarnation of this process."""


class StaleSender(Misdirected, code="STALE_SENDER"):
    """A packet from an incarnation that a later one has superseded, or from a node that is not the peer of the link."""


class HelloFirst(Misdirected, code="HELLO_FIRST"):
    """A packet on a connection whose first message was not a hello."""


class UnknownKind(PeerError, code="UNKNOWN_KIND"):
    """A message of a kind that this process does not serve."""


class HandlerFailed(PeerError, code="INTERNAL"):
    """The handler raised an unexpected error. The log of the node has its traceback."""


class RemoteError(PeerError, code="REMOTE"):
    """An error of a peer whose class this process does not rebuild. ``remote_code`` is its code."""

    def __init__(self, remote_code: str, text: str) -> None:
        self.remote_code = remote_code
        super().__init__(f"{remote_code}: {text}")


_FIGURES = {TooOld.code: ("floor",), TooLarge.code: ("size_bytes", "size_bytes_max")}
"""The attributes with integers of the errors that have some. One that was not sent is 0."""


def error_fields(error: StelaeError) -> dict[str, Scalar]:
    """Return the fields that encode ``error``."""
    fields: dict[str, Scalar] = {}
    for name, value in vars(error).items():
        if isinstance(value, str):
            fields[name] = _sent(value)
        elif value is None or (isinstance(value, int | float) and abs(value) <= INTEGER_MAX):
            fields[name] = value
    fields["code"] = getattr(error, "remote_code", error.code)
    fields["text"] = _sent(str(error))
    return fields


def _sent(text: str) -> str:
    """Return the start of a text as UTF-8 can carry it: the name of a file can have bytes that are none."""
    return text[:TEXT_LENGTH_MAX].encode(errors="backslashreplace").decode()[:TEXT_LENGTH_MAX]


def error_of(fields: Fields | None) -> StelaeError:
    """Rebuild the error that a peer sent. Never raises, whatever the fields contain."""
    given: Fields = fields or {}
    code, text = str(given.get("code")), str(given.get("text"))
    if code == NotLeader.code:
        leader = given.get("leader")
        return NotLeader(leader if isinstance(leader, str) else None, str(given.get("reason", "")))
    kind = StelaeError.by_code.get(code, RemoteError)
    if kind is RemoteError or not issubclass(kind, CallerError | RetryableError | PeerError):
        return RemoteError(code, text)
    found = kind.__new__(kind, text)  # Without ``__init__``: the peer has already composed the text.
    for name in _FIGURES.get(code, ()):
        value = given.get(name)
        setattr(found, name, value if isinstance(value, int) else 0)
    return found
