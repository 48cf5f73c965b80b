"""The errors of Stelae, by who must act.

``StelaeError`` is the root. Below it there is one branch for each party that can solve the problem: the author of the
configuration, the author or installer of a plugin, the operator of the disk, the caller, and the peer. A message gives
the fact, the known alternatives, and the next step.

These are *operating* errors. A broken invariant inside a pure core is not an exception but the effect ``Fatal``
(``stelae.spi.consensus``), which stops one tablet."""

from typing import ClassVar


class StelaeError(Exception):
    """The root of all errors that Stelae raises on purpose.

    ``code`` is the error's stable name on the wire and in ``--json`` output. It never changes once it is released. A
    class declares it as in ``class Mine(CallerError, code="MINE")``."""

    code: ClassVar[str] = "ERROR"
    #: Every class of this process that has a code of its own, by code.
    by_code: ClassVar[dict[str, type["StelaeError"]]] = {}

    def __init_subclass__(cls, *, code: str = "") -> None:
        super().__init_subclass__()
        cls.code = code or cls.code
        StelaeError.by_code.setdefault(cls.code, cls)


class ConfigError(StelaeError, code="BAD_CONFIG"):
    """A setting that cannot be used. ``where`` is ``file:line`` if it is known."""

    def __init__(self, fact: str, *, where: str = "", hint: str = "") -> None:
        self.fact, self.where, self.hint = fact, where, hint
        text = f"{where}: {fact}" if where else fact
        super().__init__(f"{text}\n{hint}" if hint else text)


class PluginError(StelaeError, code="BAD_PLUGIN"):
    """A plugin that cannot be loaded, is registered twice, or has broken its contract."""


class StorageError(StelaeError, code="STORAGE"):
    """A problem with the disk or its contents. ``path`` and ``offset`` (in bytes) are given if they are known."""

    def __init__(self, fact: str, *, path: str = "", offset: int | None = None) -> None:
        self.fact, self.path, self.offset = fact, path, offset
        place = f"{path}@{offset}" if offset is not None else path
        super().__init__(f"{place}: {fact}" if place else fact)


class Locked(StorageError, code="LOCKED"):
    """Another process uses the directory."""


class Foreign(StorageError, code="FOREIGN"):
    """The directory or file was written by another engine than the one that opens it."""


class FutureVersion(StorageError, code="FUTURE_VERSION"):
    """The file has a format version that this release does not know."""


class Full(StorageError, code="FULL"):
    """There is no space. The write had no effect, and may be repeated when there is space again."""


class Corrupt(StorageError, code="CORRUPT"):
    """Bytes that do not have their checksum or their format."""


class SyncFailed(StorageError, code="SYNC_FAILED"):
    """A write or sync failed. The file must not be trusted beyond its last successful sync."""


class Compacted(StorageError, code="COMPACTED"):
    """A read of collected entries. ``base`` is ``(term, index)`` of the last collected entry."""

    def __init__(self, base: tuple[int, int]) -> None:
        self.base = base
        super().__init__(f"entries up to {base[0]}.{base[1]} have been collected")


class ClockError(StorageError, code="CLOCK"):
    """The clock's ceiling cannot be made durable, or a peer's timestamp cannot be accepted."""


class CallerError(StelaeError, code="BAD_REQUEST"):
    """The request is wrong. Repeating it unchanged gives the same error."""


class BadIdentifier(CallerError, code="BAD_IDENTIFIER"):
    """An id with a wrong alphabet or length. The message has the first 80 characters of it."""

    def __init__(self, what: str, text: str, expected: str) -> None:
        self.what = what
        super().__init__(f"{what} {text[:80]!r} is not usable: expected {expected}")


class TooLarge(CallerError, code="TOO_LARGE"):
    """Something above its size limit. The message and the attributes give both sizes in bytes."""

    def __init__(self, what: str, size_bytes: int, size_bytes_max: int) -> None:
        self.size_bytes, self.size_bytes_max = size_bytes, size_bytes_max
        super().__init__(f"{what} has {size_bytes} bytes; at most {size_bytes_max} are accepted")


class SchemaMismatch(CallerError, code="SCHEMA_MISMATCH"):
    """Rows, columns or values that do not fit the schema."""


class PayloadMismatch(CallerError, code="PAYLOAD_MISMATCH"):
    """The same client id and sequence number were used for two different operations."""


class TooOld(CallerError, code="SNAPSHOT_TOO_OLD"):
    """A read below the history floor. ``floor`` is the lowest hybrid timestamp that can be read."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        super().__init__(f"the snapshot is older than the history floor {floor}")


class Unsupported(CallerError, code="UNSUPPORTED"):
    """The engine does not have the capability that the request needs."""


class MemberChangeRefused(CallerError, code="MEMBER_CHANGE_REFUSED"):
    """A change of a tablet's members was refused, and nothing was done. The message says what to do next."""


class NoChange(MemberChangeRefused, code="NO_CHANGE"):
    """The members already are as asked, or there is no change to abort."""


class WrongConfigId(MemberChangeRefused, code="WRONG_CONFIG_ID"):
    """The committed config is not the one that the change is meant for. The caller's view is out of date."""


class CannotAbort(MemberChangeRefused, code="CANNOT_ABORT"):
    """The change of members can be aborted no more."""


class RecoveryRefused(CallerError, code="RECOVERY_REFUSED"):
    """The recovery of a replica was refused, and nothing was done. The message says what to do next."""


class RecoveryOutdated(RecoveryRefused, code="RECOVERY_OUTDATED"):
    """The replica's log or config is not the one that the recovery is meant for. Look at it again, and decide again."""


class AlreadyRecovered(RecoveryRefused, code="ALREADY_RECOVERED"):
    """The replica has the log of this recovery already."""


class RetryableError(StelaeError, code="RETRY"):
    """The request may succeed later or on another node.

    It had no effect, or it has an identity that makes a retry safe."""


class NotLeader(RetryableError, code="NOT_LEADER"):
    """This replica is not the leader. ``leader`` is the node id of the leader, if it is known."""

    def __init__(self, leader: str | None = None, reason: str = "") -> None:
        self.leader, self.reason = leader, reason
        where = f"ask {leader}" if leader else "no leader is known yet"
        super().__init__(f"not the leader; {where}" + (f" ({reason})" if reason else ""))


class Overloaded(RetryableError, code="OVERLOADED"):
    """A bounded queue is full. Retry after a pause."""


class Unavailable(RetryableError, code="UNAVAILABLE"):
    """The peer or the tablet cannot serve now (starting, configuring, failed, unreachable)."""


class NoRows(Unavailable, code="NO_ROWS"):
    """The replica has the log only, as a witness. Another replica of the tablet has the rows."""


class ChangeNotYet(RetryableError, code="CHANGE_NOT_YET"):
    """A change of a tablet's members cannot be made now, and nothing was done. It may succeed later."""


class NotTakenOver(Unavailable, code="NOT_TAKEN_OVER"):
    """The leader tried to hand over and still leads. It accepted no writes meanwhile, so a repetition has a cost."""


class RecoveryNotYet(RetryableError, code="RECOVERY_NOT_YET"):
    """The replica leads, or heard a leader lately, so it is not recovered. Nothing was done."""


class DeadlineExceeded(RetryableError, code="DEADLINE"):
    """There was no answer within the deadline. The outcome is unknown; a request with an identity can be retried."""


class PeerError(StelaeError, code="BAD_PEER"):
    """A peer sent something that the protocol does not allow. It was refused and counted."""
