"""What becomes of a tablet when its node starts: what was found of it, and one decision table.

Source: "Tablet startup" of the tablet-copy design, rows 1-4, with the cases it leaves open spelled
out. "The WAL exists" means that the log engine names a log of this tablet in the generation of its
superblock (of any generation, where there is no superblock).

The table is total: every combination of what can be found meets exactly one row. A file that cannot
be read fails its own tablet and no other: the error becomes part of that tablet's verdict. Where only
the log cannot be read now, that holds for this run: what the replica acknowledged and promised is there.

A log that reads well but contradicts the superblock or the consensus metadata (``log_agreement``) is a lost log.

A replica that forgot what it acknowledged must not vote as one that never held an entry: rows M
and N tell it from a new one by its consensus metadata, where a committed config is saved only once
its own entry is durable in the log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from stelae.host.consensus_metadata import ConsensusMetadata, ConsensusRecord
from stelae.host.directory_layout import DirectoryLayout, tablet_names
from stelae.host.metadata_files import MetadataMissing, Record
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle.log_agreement import contradiction
from stelae.spi.consensus import HardState
from stelae.spi.errors import Corrupt, StelaeError
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.services import Files
from stelae.spi.wal import LogState


class SuperblockFinding(StrEnum):
    """What was found of the superblock: its data state where it can be read."""

    ABSENT = "ABSENT"
    UNREADABLE = "UNREADABLE"
    DELETED = "DELETED"
    COPYING = "COPYING"
    READY = "READY"


class MetadataFinding(StrEnum):
    """What was found of the consensus metadata: what it promises where it can be read."""

    ABSENT = "ABSENT"
    UNREADABLE = "UNREADABLE"
    INITIAL = "INITIAL"  # as creation writes it: term 0, no vote, a config that no entry carried
    VOTED = "VOTED"  # a term or a vote, and still the config that no entry carried
    COMMITTED = "COMMITTED"  # its config has the op id of an entry


class LogFinding(StrEnum):
    """What was found of the log. ``EMPTY``: it exists and never held an entry."""

    ABSENT = "ABSENT"
    EMPTY = "EMPTY"
    PRESENT = "PRESENT"
    DAMAGED = "DAMAGED"
    CONTRADICTS = "CONTRADICTS"  # it reads well, and lacks what the superblock or the metadata name
    UNREAD = "UNREAD"  # the disk does not give it back now; nothing is known to be wrong with it


class StartupAction(StrEnum):
    """What to do with the tablet."""

    NOTHING = "NOTHING"  # it does not exist here; creating or copying it starts afresh
    START = "START"
    TOMBSTONE = "TOMBSTONE"  # it votes and does nothing else
    ROLL_FORWARD = "ROLL_FORWARD"  # finish the deletion (steps 5 and 6), then as a tombstone
    DELETE_SELF = "DELETE_SELF"  # back to DELETED with the superblock's op id, then as a tombstone
    FAIL = "FAIL"  # stay offline; master or admin is responsible for responding
    OFFLINE = "OFFLINE"  # stay offline until the next start, which looks again


@dataclass(frozen=True, slots=True)
class StartupRow:
    """One row. Findings are names, ``*`` for any, ``!NAME`` for all but one."""

    letter: str
    block: str
    meta: str
    log: str
    action: StartupAction
    why: str

    def meets(self, block: SuperblockFinding, meta: MetadataFinding, log: LogFinding) -> bool:
        """True if the row is about these findings."""
        return _fits(self.block, block) and _fits(self.meta, meta) and _fits(self.log, log)


def _fits(written: str, found: str) -> bool:
    if written.startswith("!"):
        return found != written[1:]
    return written == "*" or found in written.split()


_READABLE = f"{MetadataFinding.INITIAL} {MetadataFinding.VOTED} {MetadataFinding.COMMITTED}"

ROWS: tuple[StartupRow, ...] = (
    StartupRow("A", "ABSENT", "ABSENT INITIAL", "ABSENT EMPTY", StartupAction.NOTHING,
        "no superblock: the tablet does not exist, or its creation was cut short"),
    StartupRow("B", "ABSENT", "!UNREADABLE", "PRESENT DAMAGED CONTRADICTS UNREAD", StartupAction.FAIL,
        "a log with entries but no superblock: the superblock was lost"),
    StartupRow("C", "UNREADABLE", "*", "*", StartupAction.FAIL, "the superblock cannot be read"),
    StartupRow("D", "!UNREADABLE", "UNREADABLE", "*", StartupAction.FAIL,
        "the consensus metadata cannot be read: what was promised is unknown"),
    StartupRow("E", "DELETED READY", "ABSENT", "*", StartupAction.FAIL,
        "the consensus metadata is gone: what was promised is unknown"),
    StartupRow("F", "DELETED", _READABLE, "ABSENT", StartupAction.TOMBSTONE, "deleted"),
    StartupRow("G", "DELETED", _READABLE, "!ABSENT", StartupAction.ROLL_FORWARD,
        "deleted, but its log is still there: the deletion was cut short"),
    StartupRow("H", "COPYING", "!UNREADABLE", "*", StartupAction.DELETE_SELF, "a copy was cut short"),
    StartupRow("I", "READY", _READABLE, "ABSENT", StartupAction.FAIL, "the log is gone"),
    StartupRow("J", "READY", _READABLE, "DAMAGED", StartupAction.FAIL, "the log is damaged"),
    StartupRow("P", "READY", _READABLE, "CONTRADICTS", StartupAction.FAIL,
        "the log contradicts the superblock or the consensus metadata: acknowledged entries were lost"),
    StartupRow("O", "READY", _READABLE, "UNREAD", StartupAction.OFFLINE,
        "the log cannot be read now; the next start of the node tries again"),
    StartupRow("K", "READY", _READABLE, "PRESENT", StartupAction.START, "ready"),
    StartupRow("L", "READY", "INITIAL VOTED", "EMPTY", StartupAction.START, "ready, and nothing was written yet"),
    StartupRow("M", "READY", "COMMITTED", "EMPTY", StartupAction.FAIL,
        "the committed config stood in an entry but the log is empty: the log was lost"),
    StartupRow("N", "ABSENT", "VOTED COMMITTED", "ABSENT EMPTY", StartupAction.FAIL,
        "promises were made but there is no superblock: the superblock was lost"),
)  # fmt: skip
"""The whole table; every combination of findings meets exactly one row."""


def decide(block: SuperblockFinding, meta: MetadataFinding, log: LogFinding) -> StartupRow:
    """Return the row that says what to do with a tablet, given what was found of it."""
    return next(row for row in ROWS if row.meets(block, meta, log))


OpIdAt: TypeAlias = Callable[[LogId, int], OpId]
"""The op id at an index of a log, from its base on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletFinding:
    """One tablet at start. ``failure`` says why it is FAILED, or is empty when it is not."""

    tablet_id: TabletId
    superblock: Superblock | None
    consensus: ConsensusRecord | None
    log: LogState | None
    decision: StartupRow
    failure: str


def scan_tablets(
    files: Files, layout: DirectoryLayout, logs: Mapping[LogId, LogState], op_id_at: OpIdAt
) -> list[TabletFinding]:
    """Look at every tablet that has a superblock, consensus metadata or a log; sorted by id."""
    names = {log.tablet_id for log in logs}
    names.update(tablet_names(files, layout.superblocks), tablet_names(files, layout.consensus))
    return [look(files, layout, logs, op_id_at, name) for name in sorted(names)]


def look(
    files: Files, layout: DirectoryLayout, logs: Mapping[LogId, LogState], op_id_at: OpIdAt, tablet: TabletId
) -> TabletFinding:
    """Look at one tablet. ``op_id_at`` is the log engine's."""
    problems: list[str] = []
    superblock, block = _read(SuperblockFile(files, layout, tablet).load, problems)
    consensus, meta = _read(ConsensusMetadata(files, layout, tablet).load, problems)
    newest = max((log for log in logs if log.tablet_id == tablet), default=LogId(tablet, 0))
    log = logs.get(newest if superblock is None else superblock.log_id)
    state = block if superblock is None else superblock.data_state.value
    promised = meta if consensus is None else _promises(consensus)
    finding = _log_finding(log, problems)
    if log is not None and superblock is not None and consensus is not None and state == SuperblockFinding.READY:
        finding = _compared(finding, superblock, consensus, log, op_id_at, problems)
    row = decide(SuperblockFinding(state), MetadataFinding(promised), finding)
    details = f" ({'; '.join(problems)})" if problems else ""
    return TabletFinding(
        tablet_id=tablet,
        superblock=superblock,
        consensus=consensus,
        log=log,
        decision=row,
        failure=f"{row.why}{details}" if row.action in (StartupAction.FAIL, StartupAction.OFFLINE) else "",
    )


def _read(load: Callable[[], Record], problems: list[str]) -> tuple[Record | None, str]:
    """Return what is there, and what was found in one word."""
    try:
        return load(), "PRESENT"
    except MetadataMissing:
        return None, "ABSENT"
    except (StelaeError, OSError) as error:
        problems.append(str(error))
        return None, "UNREADABLE"


def _promises(record: ConsensusRecord) -> MetadataFinding:
    if record.committed_config.op_id > ZERO:
        return MetadataFinding.COMMITTED
    return MetadataFinding.INITIAL if record.hard_state == HardState() else MetadataFinding.VOTED


def _log_finding(log: LogState | None, problems: list[str]) -> LogFinding:
    if log is None:
        return LogFinding.ABSENT
    if log.damage is not None:
        problems.append(f"{log.damage.path}@{log.damage.offset}: {log.damage.detail}")
        return LogFinding.UNREAD if log.damage.unread else LogFinding.DAMAGED
    return LogFinding.EMPTY if log.last == ZERO else LogFinding.PRESENT


def _compared(
    finding: LogFinding,
    superblock: Superblock,
    consensus: ConsensusRecord,
    log: LogState,
    op_id_at: OpIdAt,
    problems: list[str],
) -> LogFinding:
    """Compare a log that reads well with the two records. Of an empty log row M judges the config."""
    if finding not in (LogFinding.PRESENT, LogFinding.EMPTY):
        return finding
    config = consensus.committed_config.op_id if finding is LogFinding.PRESENT else ZERO
    try:
        wrong = contradiction(superblock.flushed, config, log, lambda index: op_id_at(superblock.log_id, index))
    except StelaeError as error:
        problems.append(str(error))
        return LogFinding.DAMAGED if isinstance(error, Corrupt) else LogFinding.UNREAD
    if wrong:
        problems.append(wrong)
        return LogFinding.CONTRADICTS
    return finding
