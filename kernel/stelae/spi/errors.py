"""Errors, split by who must act.

One root, ``StelaeError``; below it one branch per party that can mend the matter: who wrote the configuration, who
wrote or installed a plugin, who runs the disk, the caller, the peer. A message says the fact, alternatives, next step.

An *operating* error is one of these. A broken invariant inside a pure core is not an exception:
it is the effect ``Fatal`` (see ``stelae.spi.consensus``), which stops one tablet."""

from typing import ClassVar


class StelaeError(Exception):
    """Root of all errors that Stelae raises on purpose. ``code``, given as ``class Mine(CallerError, code="MINE")``, is
    the stable name under which the error crosses the wire and appears in ``--json``; it never changes once released."""

    code: ClassVar[str] = "ERROR"
    by_code: ClassVar[dict[str, type["StelaeError"]]] = {}  #: Every class of this process that has a code of its own.

    def __init_subclass__(cls, *, code: str = "") -> None:
        super().__init_subclass__()
        cls.code = code or cls.code
        StelaeError.by_code.setdefault(cls.code, cls)


class ConfigError(StelaeError, code="BAD_CONFIG"):
    """A setting that cannot be used. ``where`` is ``file:line`` when known."""

    def __init__(self, fact: str, *, where: str = "", hint: str = "") -> None:
        self.fact, self.where, self.hint = fact, where, hint
        text = f"{where}: {fact}" if where else fact
        super().__init__(f"{text}\n{hint}" if hint else text)


class PluginError(StelaeError, code="BAD_PLUGIN"):
    """A plugin that cannot be loaded, is registered twice, or broke its contract."""


class StorageError(StelaeError, code="STORAGE"):
    """Something on or about the disk. ``path`` and ``offset`` (bytes) are given when known."""

    def __init__(self, fact: str, *, path: str = "", offset: int | None = None) -> None:
        self.fact, self.path, self.offset = fact, path, offset
        place = f"{path}@{offset}" if offset is not None else path
        super().__init__(f"{place}: {fact}" if place else fact)


class Locked(StorageError, code="LOCKED"):
    """Another process holds the directory."""


class Foreign(StorageError, code="FOREIGN"):
    """The directory or file was not written by the engine that opens it."""


class FutureVersion(StorageError, code="FUTURE_VERSION"):
    """The file carries a format version that this release does not know."""


class Full(StorageError, code="FULL"):
    """No space left. Nothing of the failed write is durable; it resumes when there is space."""


class Corrupt(StorageError, code="CORRUPT"):
    """Bytes that fail their checksum or their format, where they must not."""


class SyncFailed(StorageError, code="SYNC_FAILED"):
    """A write or sync failed: nothing of that file may be trusted beyond the last durable point."""


class Compacted(StorageError, code="COMPACTED"):
    """A read below the log's base. ``base`` is ``(term, index)`` of the last collected entry."""

    def __init__(self, base: tuple[int, int]) -> None:
        self.base = base
        super().__init__(f"entries up to {base[0]}.{base[1]} have been collected")


class ClockError(StorageError, code="CLOCK"):
    """The clock's durable ceiling or a peer's timestamp cannot be accepted."""


class CallerError(StelaeError, code="BAD_REQUEST"):
    """The request itself is wrong; repeating it unchanged gives the same answer."""


class BadIdentifier(CallerError, code="BAD_IDENTIFIER"):
    """An id outside its alphabet or length. The offending text is cut to 80 characters."""

    def __init__(self, what: str, text: str, expected: str) -> None:
        self.what = what
        super().__init__(f"{what} {text[:80]!r} is not usable: expected {expected}")


class TooLarge(CallerError, code="TOO_LARGE"):
    """Something above its limit; both sizes in bytes are in the message and as attributes."""

    def __init__(self, what: str, size_bytes: int, size_bytes_max: int) -> None:
        self.size_bytes, self.size_bytes_max = size_bytes, size_bytes_max
        super().__init__(f"{what} has {size_bytes} bytes; at most {size_bytes_max} are accepted")


class SchemaMismatch(CallerError, code="SCHEMA_MISMATCH"):
    """Rows, columns or values that do not fit the schema."""


class PayloadMismatch(CallerError, code="PAYLOAD_MISMATCH"):
    """The same client id and sequence were used for two different requests."""


class TooOld(CallerError, code="SNAPSHOT_TOO_OLD"):
    """A read below the history floor. ``floor`` is the lowest hybrid timestamp still served."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        super().__init__(f"snapshot is older than the history floor {floor}")


class Unsupported(CallerError, code="UNSUPPORTED"):
    """The engine in use does not have the capability that the request needs."""


class RetryableError(StelaeError, code="RETRY"):
    """The request may succeed later or elsewhere; it had no effect or has a fixed identity."""


class NotLeader(RetryableError, code="NOT_LEADER"):
    """This replica does not lead. ``leader`` is the node uuid to ask next, if one is known."""

    def __init__(self, leader: str | None = None, reason: str = "") -> None:
        self.leader, self.reason = leader, reason
        where = f"ask {leader}" if leader else "no leader is known yet"
        super().__init__(f"not the leader; {where}" + (f" ({reason})" if reason else ""))


class Overloaded(RetryableError, code="OVERLOADED"):
    """A bounded queue is full; retry after backing off."""


class Unavailable(RetryableError, code="UNAVAILABLE"):
    """The peer or the tablet cannot serve now (starting, configuring, failed, unreachable)."""


class DeadlineExceeded(RetryableError, code="DEADLINE"):
    """No answer within the deadline; the outcome is unknown unless the request has an identity."""


class PeerError(StelaeError, code="BAD_PEER"):
    """A peer sent something that the protocol does not allow; it was refused and counted."""
