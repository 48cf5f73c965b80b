"""Errors, split by who must act.

One root, ``StelaeError``; below it one branch per party that can mend the matter: whoever wrote
the configuration, whoever wrote or installed a plugin, whoever runs the disk, the caller of an
API, the peer at the other end. A message says the fact, the known alternatives, and the next step.

An *operating* error is one of these. A broken invariant inside a pure core is not an exception:
it is the effect ``Fatal`` (see ``stelae.spi.consensus``), which stops one tablet.
"""

from __future__ import annotations

from typing import ClassVar


class StelaeError(Exception):
    """Root of all errors that Stelae raises on purpose.

    ``code`` is the stable name under which the error crosses the wire and appears in ``--json``
    output; it never changes once released.
    """

    code: ClassVar[str] = "ERROR"


# -- configuration: whoever wrote node.toml or the command line must act ------------------------


class ConfigError(StelaeError):
    """A setting that cannot be used. ``where`` is ``file:line`` when known."""

    code = "BAD_CONFIG"

    def __init__(self, fact: str, *, where: str = "", hint: str = "") -> None:
        self.fact = fact
        self.where = where
        self.hint = hint
        super().__init__(f"{where}: {fact}" if where else fact, hint)

    def __str__(self) -> str:
        text = f"{self.where}: {self.fact}" if self.where else self.fact
        return f"{text}\n{self.hint}" if self.hint else text


# -- plugins: whoever wrote, chose or installed the plugin must act ------------------------------


class PluginError(StelaeError):
    """A plugin that cannot be loaded, is registered twice, or broke its contract."""

    code = "BAD_PLUGIN"


# -- storage: whoever runs the disk must act -----------------------------------------------------


class StorageError(StelaeError):
    """Something on or about the disk. ``path`` and ``offset`` (bytes) are given when known."""

    code = "STORAGE"

    def __init__(self, fact: str, *, path: str = "", offset: int | None = None) -> None:
        self.fact = fact
        self.path = path
        self.offset = offset
        place = f"{path}@{offset}" if offset is not None else path
        super().__init__(f"{place}: {fact}" if place else fact)


class Locked(StorageError):
    """Another process holds the directory."""

    code = "LOCKED"


class Foreign(StorageError):
    """The directory or file was not written by the engine that opens it."""

    code = "FOREIGN"


class FutureVersion(StorageError):
    """The file carries a format version that this release does not know."""

    code = "FUTURE_VERSION"


class Full(StorageError):
    """No space left. Nothing of the failed write is durable; it resumes when there is space."""

    code = "FULL"


class Corrupt(StorageError):
    """Bytes that fail their checksum or their format, where they must not."""

    code = "CORRUPT"


class SyncFailed(StorageError):
    """A write or sync failed: nothing of that file may be trusted beyond the last durable point."""

    code = "SYNC_FAILED"


class Compacted(StorageError):
    """A read below the log's base. ``base`` is ``(term, index)`` of the last collected entry."""

    code = "COMPACTED"

    def __init__(self, base: tuple[int, int]) -> None:
        self.base = base
        super().__init__(f"entries up to {base[0]}.{base[1]} have been collected")


class ClockError(StorageError):
    """The clock's durable ceiling or a peer's timestamp cannot be accepted."""

    code = "CLOCK"


# -- the caller must act --------------------------------------------------------------------------


class CallerError(StelaeError):
    """The request itself is wrong; repeating it unchanged gives the same answer."""

    code = "BAD_REQUEST"


class BadIdentifier(CallerError):
    """An id outside its alphabet or length. The offending text is cut to 80 characters."""

    code = "BAD_IDENTIFIER"

    def __init__(self, what: str, text: str, expected: str) -> None:
        self.what = what
        super().__init__(f"{what} {text[:80]!r} is not usable: expected {expected}")


class TooLarge(CallerError):
    """Something above its limit; both sizes in bytes are in the message and as attributes."""

    code = "TOO_LARGE"

    def __init__(self, what: str, size_bytes: int, size_bytes_max: int) -> None:
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max
        super().__init__(f"{what} has {size_bytes} bytes; at most {size_bytes_max} are accepted")


class SchemaMismatch(CallerError):
    """Rows, columns or values that do not fit the schema."""

    code = "SCHEMA_MISMATCH"


class PayloadMismatch(CallerError):
    """The same client id and sequence were used for two different requests."""

    code = "PAYLOAD_MISMATCH"


class TooOld(CallerError):
    """A read below the history floor. ``floor`` is the lowest hybrid timestamp still served."""

    code = "SNAPSHOT_TOO_OLD"

    def __init__(self, floor: int) -> None:
        self.floor = floor
        super().__init__(f"snapshot is older than the history floor {floor}")


class Unsupported(CallerError):
    """The engine in use does not have the capability that the request needs."""

    code = "UNSUPPORTED"


# -- the peer, the network, or time must act: retry ----------------------------------------------


class RetryableError(StelaeError):
    """The request may succeed later or elsewhere; it had no effect or has a fixed identity."""

    code = "RETRY"


class NotLeader(RetryableError):
    """This replica does not lead. ``leader`` is the node uuid to ask next, if one is known."""

    code = "NOT_LEADER"

    def __init__(self, leader: str | None = None, reason: str = "") -> None:
        self.leader = leader
        self.reason = reason
        where = f"ask {leader}" if leader else "no leader is known yet"
        super().__init__(f"not the leader; {where}" + (f" ({reason})" if reason else ""))


class Overloaded(RetryableError):
    """A bounded queue is full; retry after backing off."""

    code = "OVERLOADED"


class Unavailable(RetryableError):
    """The peer or the tablet cannot serve now (starting, configuring, failed, unreachable)."""

    code = "UNAVAILABLE"


class DeadlineExceeded(RetryableError):
    """No answer within the deadline; the outcome is unknown unless the request has an identity."""

    code = "DEADLINE"


class PeerError(StelaeError):
    """A peer sent something that the protocol does not allow; it was refused and counted."""

    code = "BAD_PEER"
