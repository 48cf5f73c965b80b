"""Opens the engine's directory, and judges the environment and its logs. The README has the decision table, whose rows
are named in the comments below. Every row has a test."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from stelae.spi.errors import Corrupt, FutureVersion, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.services import Files
from stelae.spi.wal import Damage
from stelae_shared.lmdb_files.environment import DATA_NAME
from stelae_shared.lmdb_files.marker import EnvironmentMarker, MarkerOwner, ShutdownState
from stelae_wal_lmdb.check import EnvironmentReport
from stelae_wal_lmdb.child import check_in_child
from stelae_wal_lmdb.config import LmdbConfig
from stelae_wal_lmdb.environment import LogEnvironment
from stelae_wal_lmdb.format import HEADER_KEY, RecordUse, decode_header, encode_header
from stelae_wal_lmdb.log import EnvironmentLog, lost_log
from stelae_wal_lmdb.names import LogNames
from stelae_wal_lmdb.walk import LogFlaw, WalkResult, walk

ENV_NAME = "env"
NAMES_NAME = "names"
LOCK_NAME = "lock"
OWNER = MarkerOwner(b"stelwlmm", "log", (LOCK_NAME,))


@dataclass(slots=True)
class LogDirectory:
    """The engine's directory, and the disk and settings for it."""

    files: Files
    directory: str
    config: LmdbConfig

    @property
    def env_directory(self) -> str:
        """Directory of LMDB's two files."""
        return f"{self.directory}/{ENV_NAME}"

    @property
    def data_path(self) -> str:
        """Path of the file with all data."""
        return f"{self.env_directory}/{DATA_NAME}"

    @property
    def names(self) -> LogNames:
        """The names of the logs."""
        return LogNames(self.files, f"{self.directory}/{NAMES_NAME}")

    @property
    def marker(self) -> EnvironmentMarker:
        """The marker file, which records how the environment was left."""
        return EnvironmentMarker(self.files, self.directory, self.data_path, OWNER)


@dataclass(slots=True)
class OpenedEnvironment:
    """The result of opening.

    Attributes:
        env: the environment; ``None`` if it is unusable.
        refusal: why nothing may be written to the environment; ``None`` if it may be written.
        logs: every log that has a name.
        leftovers: logs whose removal has begun, which have to be purged.
        unnamed: logs whose name is missing.
        next_number: number of the next log.
    """

    env: LogEnvironment | None
    refusal: StorageError | None = None
    logs: dict[LogId, EnvironmentLog] = field(default_factory=dict)
    leftovers: list[EnvironmentLog] = field(default_factory=list)
    unnamed: list[EnvironmentLog] = field(default_factory=list)
    next_number: int = 1


def open_all(place: LogDirectory, left: ShutdownState) -> OpenedEnvironment:
    """Open the environment and judge every log in it.

    Args:
        place: the engine's directory.
        left: how the environment was left.

    Raises:
        FutureVersion, Full: see the contract.
        StorageError: the environment cannot be read or checked now (row K).
    """
    names = place.names.all()
    if not place.files.exists(place.data_path):  # A, B
        return damage_all_logs(place, names, "the environment is gone") if names else fresh(place)
    place.files.open(place.data_path).close()  # A directory in its place is no environment to be checked.
    report = EnvironmentReport()
    if left is not ShutdownState.CLEAN or place.config.check == "always":  # C
        report = check_in_child(place.env_directory, place.config.check_seconds_max)
    if report.newer:
        raise FutureVersion(report.newer, path=place.data_path)
    if report.unread:  # K
        raise StorageError(report.unread, path=place.data_path)
    if (report.broken or left is ShutdownState.DISTRUSTED) and not names:  # A
        return fresh(place)
    if report.broken:  # E
        return damage_all_logs(place, names, report.broken)
    try:
        opened = _load(place, names, report)
    except Corrupt as error:
        return damage_all_logs(place, names, error.fact)
    except (struct.error, ValueError) as error:
        return damage_all_logs(place, names, f"it holds keys that this engine did not write: {error}")
    if left is ShutdownState.DISTRUSTED:  # F
        _distrust(place, opened)
        return opened
    place.marker.write(ShutdownState.OPEN)
    for log in opened.unnamed:  # H
        place.names.add(log.number, log.name)
        opened.logs[log.name] = log
    return opened


def fresh(place: LogDirectory) -> OpenedEnvironment:
    """Begin with a new environment in place of the old one, if there is one.

    Raises:
        Full: there is no space for it.
    """
    files = place.files
    files.remove_tree(place.env_directory)
    files.make_directory(place.env_directory)
    files.sync_directory(place.directory)
    place.marker.write(ShutdownState.OPEN)
    return _load(place, {}, EnvironmentReport())


def damage_all_logs(place: LogDirectory, names: dict[int, LogId], fact: str) -> OpenedEnvironment:
    """Return every log that has a name as damaged. The environment is not changed."""
    refusal = Corrupt(fact, path=place.data_path, offset=0)
    logs = {log: lost_log(number, log, place.data_path, fact) for number, log in names.items()}
    return OpenedEnvironment(None, refusal, logs)


def _load(place: LogDirectory, names: dict[int, LogId], report: EnvironmentReport) -> OpenedEnvironment:
    env = LogEnvironment.open(place.files, place.env_directory, place.config)
    try:
        with env.read() as txn:
            header = txn.get(HEADER_KEY)
            if header is None and (names or txn.stat()["entries"]):
                raise Corrupt("the header of the environment is missing", path=env.path, offset=0)
            next_number = 1 if header is None else decode_header(header, env.path)
            found = walk(txn, lambda view: 0, bodies=False)
        if header is None:
            env.make_room(0, 1)
            with env.write() as txn:
                txn.put(HEADER_KEY, encode_header(next_number))
    except BaseException:
        env.close()
        raise
    opened = OpenedEnvironment(
        env, next_number=max([next_number, *(number + 1 for number in (*names, *found.records))])
    )
    flaws = {one.number: LogFlaw(one.number, OpId(*one.last_good), one.offset, one.detail) for one in report.findings}
    opened.logs = {
        name: _log(place, number, name, found, flaws)
        for number, name in names.items()
        if not _is_dropping(found, number)
    }
    for number, record in found.records.items():
        if record is not None and record.use is RecordUse.DROPPING:  # I
            opened.leftovers.append(EnvironmentLog(number, record))
        elif record is not None and number not in names:
            opened.unnamed.append(_log(place, number, record.log, found, flaws))
    return opened


def _is_dropping(found: WalkResult, number: int) -> bool:
    record = found.records.get(number)
    return record is not None and record.use is RecordUse.DROPPING


def _log(place: LogDirectory, number: int, name: LogId, found: WalkResult, flaws: dict[int, LogFlaw]) -> EnvironmentLog:
    """Return one named log: good, or damaged at the earlier of what the child found and what the keys show."""
    record = found.records.get(number)
    if record is None or record.log != name:  # G
        return lost_log(number, name, place.data_path, f"the record of log {name} is missing or damaged")
    # D, J: what the child found, and what the keys show
    both = [flaw for flaw in (flaws.get(number), found.flaws.get(number)) if flaw is not None]
    if not both:
        return EnvironmentLog(number, record)
    first = min(both, key=lambda flaw: flaw.last_good)
    damage = Damage(path=place.data_path, offset=first.offset, last_good=first.last_good, detail=first.detail)
    return EnvironmentLog(number, record, damage)


def _distrust(place: LogDirectory, opened: OpenedEnvironment) -> None:
    """Refuse appends to every log; each log can be read up to its end (durability rule 7)."""
    fact = "a sync of the environment failed once; replace the replicas of this node"
    opened.refusal = Corrupt(fact, path=place.data_path, offset=0)
    opened.leftovers = []
    for log in opened.logs.values():
        if log.damage is None:
            log.damage = Damage(path=place.data_path, offset=0, last_good=log.record.last, detail=fact)
