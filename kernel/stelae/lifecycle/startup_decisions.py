"""Decides what to do with each tablet when its node starts: inspects its files, and looks up a decision table.

Source: "Tablet startup" of the tablet-copy design, rows 1-4, with the cases that it leaves open. "The WAL exists" means
that the log engine lists a log of this tablet in the generation of its superblock (in any generation if there is no
superblock).

The table is total: every combination of findings has exactly one row. A file that cannot be read fails its own tablet
only; the error becomes part of the tablet's failure. If only the log cannot be read now, the tablet is offline until
the next start, because nothing that the replica acknowledged is known to be lost.

A log that can be read but contradicts the superblock or the consensus metadata (``log_agreement``) is a lost log.
Consensus metadata with an earlier term than the last op id of a tombstone is lost in the same way.

A tombstone whose last op id is UNKNOWN never votes, whatever its consensus metadata are. So a deletion of a replica
whose promises are unknown ends like any other.

A replica that lost what it acknowledged must not vote as a new replica would. Rows M and N tell the two apart by the
consensus metadata: a committed config is saved there only once its own entry is durable in the log."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from stelae.host.consensus_metadata import ConsensusMetadata, ConsensusRecord
from stelae.host.directory_layout import DirectoryLayout, tablet_names
from stelae.host.metadata_files import MetadataMissing, Record
from stelae.host.superblock import DataState, Superblock, SuperblockFile
from stelae.lifecycle.abandoned_copy import is_first_copy
from stelae.lifecycle.log_agreement import config_in_log, contradiction, older_metadata
from stelae.spi.consensus import HardState
from stelae.spi.errors import Corrupt, StelaeError
from stelae.spi.ids import ZERO, LogId, OpId, TabletId
from stelae.spi.services import Files
from stelae.spi.wal import LogState


class SuperblockFinding(StrEnum):
    """The state of the superblock: its data state, if it can be read."""

    ABSENT = "ABSENT"
    UNREADABLE = "UNREADABLE"
    DELETED = "DELETED"
    LOST = "LOST"  #: DELETED, with the last op id UNKNOWN: it never votes again.
    COPYING = "COPYING"  #: Over a tombstone, whose last op id the superblock keeps.
    FIRST_COPY = "FIRST_COPY"  #: COPYING, and the tablet was never on this node before.
    READY = "READY"


class MetadataFinding(StrEnum):
    """The state of the consensus metadata."""

    ABSENT = "ABSENT"
    UNREADABLE = "UNREADABLE"
    OLDER = "OLDER"  #: Its term is before that of the tombstone's last op id, so it lacks votes.
    INITIAL = "INITIAL"  #: As a creation writes it: term 0, no vote, and the initial config, which is in no entry.
    VOTED = "VOTED"  #: It has a term or a vote, and still the initial config.
    COMMITTED = "COMMITTED"  #: Its config has the op id of an entry.


class LogFinding(StrEnum):
    """The state of the log."""

    ABSENT = "ABSENT"
    EMPTY = "EMPTY"  #: It exists and never had an entry.
    PRESENT = "PRESENT"
    DAMAGED = "DAMAGED"
    CONTRADICTS = "CONTRADICTS"  #: It can be read, but lacks an entry that the superblock or the metadata name.
    UNREAD = "UNREAD"  #: The disk cannot read it now. Nothing is known to be wrong with it.


class StartupAction(StrEnum):
    """What to do with the tablet."""

    NOTHING = "NOTHING"  #: The tablet does not exist on this node. It can be created or copied.
    START = "START"
    TOMBSTONE = "TOMBSTONE"  #: It votes and does nothing else.
    ROLL_FORWARD = "ROLL_FORWARD"  #: Complete the deletion (steps 5 and 6), then as a tombstone.
    DELETE_SELF = "DELETE_SELF"  #: Back to DELETED with the superblock's op id, then as a tombstone.
    REMOVE = "REMOVE"  #: Remove what a first copy has made. The tablet does not exist on this node then.
    FAIL = "FAIL"  #: It stays offline. A master or an operator must respond.
    OFFLINE = "OFFLINE"  #: It stays offline until the next start, which inspects it again.


@dataclass(frozen=True, slots=True)
class StartupRow:
    """One row of the table. A finding is one or more names, ``*`` for any, or ``!NAME`` for all but one."""

    letter: str
    block: str
    meta: str
    log: str
    action: StartupAction
    why: str

    def meets(self, block: SuperblockFinding, meta: MetadataFinding, log: LogFinding) -> bool:
        """Return whether the row applies to these findings."""
        return _fits(self.block, block) and _fits(self.meta, meta) and _fits(self.log, log)


def _fits(written: str, found: str) -> bool:
    if written.startswith("!"):
        return found != written[1:]
    return written == "*" or found in written.split()


_READABLE = f"{MetadataFinding.INITIAL} {MetadataFinding.VOTED} {MetadataFinding.COMMITTED}"
_KNOWN_BLOCK = "ABSENT DELETED COPYING FIRST_COPY READY"
_USABLE = f"{MetadataFinding.ABSENT} {_READABLE}"

ROWS: tuple[StartupRow, ...] = (
    StartupRow("A", "ABSENT", "ABSENT INITIAL", "ABSENT EMPTY", StartupAction.NOTHING,
        "no superblock: the tablet does not exist, or its creation was cut short"),
    StartupRow("B", "ABSENT", _USABLE, "PRESENT DAMAGED CONTRADICTS UNREAD", StartupAction.FAIL,
        "a log with entries but no superblock: the superblock was lost"),
    StartupRow("C", "UNREADABLE", "*", "*", StartupAction.FAIL, "the superblock cannot be read"),
    StartupRow("S", "LOST", "*", "ABSENT", StartupAction.TOMBSTONE, "deleted; it never votes again"),
    StartupRow("T", "LOST", "*", "!ABSENT", StartupAction.ROLL_FORWARD,
        "deleted, but its log is still there: the deletion was cut short; it never votes again"),
    StartupRow("D", _KNOWN_BLOCK, "UNREADABLE", "*", StartupAction.FAIL,
        "the consensus metadata cannot be read: what was promised is unknown"),
    StartupRow("R", _KNOWN_BLOCK, "OLDER", "*", StartupAction.FAIL,
        "the consensus metadata is older than the tombstone: what was promised is unknown"),
    StartupRow("E", "DELETED COPYING READY", "ABSENT", "*", StartupAction.FAIL,
        "the consensus metadata is gone: what was promised is unknown"),
    StartupRow("F", "DELETED", _READABLE, "ABSENT", StartupAction.TOMBSTONE, "deleted"),
    StartupRow("G", "DELETED", _READABLE, "!ABSENT", StartupAction.ROLL_FORWARD,
        "deleted, but its log is still there: the deletion was cut short"),
    StartupRow("H", "COPYING", _READABLE, "*", StartupAction.DELETE_SELF, "a copy was cut short"),
    StartupRow("Q", "FIRST_COPY", _USABLE, "*", StartupAction.REMOVE, "a first copy was cut short"),
    StartupRow("I", "READY", _READABLE, "ABSENT", StartupAction.FAIL, "the log is gone"),
    StartupRow("J", "READY", _READABLE, "DAMAGED", StartupAction.FAIL, "the log is damaged"),
    StartupRow("P", "READY", _READABLE, "CONTRADICTS", StartupAction.FAIL,
        "the log contradicts the superblock or the consensus metadata: entries or votes of this replica were lost"),
    StartupRow("O", "READY", _READABLE, "UNREAD", StartupAction.OFFLINE,
        "the log cannot be read now; the next start of the node tries again"),
    StartupRow("K", "READY", _READABLE, "PRESENT", StartupAction.START, "ready"),
    StartupRow("L", "READY", "INITIAL VOTED", "EMPTY", StartupAction.START, "ready, and nothing was written yet"),
    StartupRow("M", "READY", "COMMITTED", "EMPTY", StartupAction.FAIL,
        "the committed config stood in an entry but the log is empty: the log was lost"),
    StartupRow("N", "ABSENT", "VOTED COMMITTED", "ABSENT EMPTY", StartupAction.FAIL,
        "promises were made but there is no superblock: the superblock was lost"),
)  # fmt: skip
"""The table. Every combination of findings has exactly one row."""


def decide(block: SuperblockFinding, meta: MetadataFinding, log: LogFinding) -> StartupRow:
    """Return the row for the findings of a tablet."""
    return next(row for row in ROWS if row.meets(block, meta, log))


OpIdAt: TypeAlias = Callable[[LogId, int], OpId]
"""Returns the op id at an index of a log, from its base on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletFinding:
    """What was found of one tablet, and the decision."""

    tablet_id: TabletId
    superblock: Superblock | None  #: ``None`` if it is absent or cannot be read; so are the next two.
    consensus: ConsensusRecord | None
    log: LogState | None
    decision: StartupRow
    failure: str  #: Why the tablet does not start; empty if it does.
    newest_log: LogId | None = None  #: Its log of the highest generation, also without a superblock.


def scan_tablets(
    files: Files, layout: DirectoryLayout, logs: Mapping[LogId, LogState], op_id_at: OpIdAt
) -> list[TabletFinding]:
    """Inspect every tablet that has a superblock, consensus metadata or a log. Return the findings, sorted by id."""
    names = {log.tablet_id for log in logs}
    names.update(tablet_names(files, layout.superblocks), tablet_names(files, layout.consensus))
    return [inspect_tablet(files, layout, logs, op_id_at, name) for name in sorted(names)]


def inspect_tablet(
    files: Files, layout: DirectoryLayout, logs: Mapping[LogId, LogState], op_id_at: OpIdAt, tablet: TabletId
) -> TabletFinding:
    """Inspect one tablet. ``op_id_at`` is that of the log engine."""
    problems: list[str] = []
    superblock, block = _read(SuperblockFile(files, layout, tablet).load, problems)
    consensus, meta = _read(ConsensusMetadata(files, layout, tablet).load, problems)
    newest = max((log for log in logs if log.tablet_id == tablet), default=LogId(tablet, 0))
    log = logs.get(newest if superblock is None else superblock.log_id)
    state = block if superblock is None else superblock.data_state.value
    if superblock is not None and is_first_copy(superblock):
        state = SuperblockFinding.FIRST_COPY
    elif superblock is not None and state == SuperblockFinding.DELETED and superblock.tombstone == "UNKNOWN":
        state = SuperblockFinding.LOST
    promised = meta if consensus is None else _promises(consensus, superblock, problems)
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
        newest_log=newest if newest in logs else None,
        failure=f"{row.why}{details}" if row.action in (StartupAction.FAIL, StartupAction.OFFLINE) else "",
    )


def lost_logs(findings: Iterable[TabletFinding]) -> list[TabletFinding]:
    """Return the tablets whose log is gone, or lacks entries that the superblock or the consensus metadata name.

    A log that has damage is not among them: the log engine reports it."""
    return [
        one
        for one in findings
        if one.failure
        and one.superblock is not None
        and one.superblock.data_state is DataState.READY
        and one.consensus is not None
        and (one.log is None or one.log.damage is None)
    ]


def _read(load: Callable[[], Record], problems: list[str]) -> tuple[Record | None, str]:
    """Return the record, if it can be read, and the finding."""
    try:
        return load(), "PRESENT"
    except MetadataMissing:
        return None, "ABSENT"
    except (StelaeError, OSError) as error:
        problems.append(str(error))
        return None, "UNREADABLE"


def _promises(record: ConsensusRecord, superblock: Superblock | None, problems: list[str]) -> MetadataFinding:
    tombstone = superblock.tombstone if superblock is not None else None
    if isinstance(tombstone, OpId) and (older := older_metadata(record.term, tombstone)):
        problems.append(older)
        return MetadataFinding.OLDER
    if config_in_log(record.committed_config.op_id, tombstone) > ZERO:
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
    """Compare an undamaged log with the two records. For an empty log only row M considers the config."""
    if finding not in (LogFinding.PRESENT, LogFinding.EMPTY):
        return finding
    known = config_in_log(consensus.committed_config.op_id, superblock.tombstone)
    config = known if finding is LogFinding.PRESENT else ZERO
    try:
        term, flushed = consensus.term, superblock.flushed
        wrong = contradiction(flushed, config, term, log, lambda index: op_id_at(superblock.log_id, index))
    except StelaeError as error:
        problems.append(str(error))
        return LogFinding.DAMAGED if isinstance(error, Corrupt) else LogFinding.UNREAD
    if wrong:
        problems.append(wrong)
        return LogFinding.CONTRADICTS
    return finding
