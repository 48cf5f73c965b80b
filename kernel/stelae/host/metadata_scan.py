"""What a starting node finds of each tablet, with one verdict per tablet.

A file that cannot be read fails its own tablet and no other: the error becomes part of that
tablet's verdict, and the scan goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stelae.host.consensus_meta import ConsensusMetadata, ConsensusRecord
from stelae.host.layout import Layout, tablet_names
from stelae.host.metadata import MetadataMissing, Record
from stelae.host.startup import Action, Block, Log, Meta, Row, decide
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.services import Files
from stelae.spi.wal import LogState


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One tablet at start. ``errors`` says what could not be read, in the words of its reader."""

    tablet_id: TabletId
    superblock: Superblock | None
    consensus: ConsensusRecord | None
    log: LogState | None
    decision: Row
    errors: tuple[StelaeError, ...] = ()

    @property
    def failure(self) -> str | None:
        """Why the tablet is FAILED, or ``None`` when it is not."""
        if self.decision.action is not Action.FAIL:
            return None
        details = "; ".join(str(error) for error in self.errors)
        damage = self.log.damage if self.log is not None else None
        if damage is not None:
            details = f"{damage.path}@{damage.offset}: {damage.detail}"
        return f"{self.decision.why} ({details})" if details else self.decision.why


def scan_tablets(files: Files, layout: Layout, logs: Mapping[LogId, LogState]) -> list[Found]:
    """Look at every tablet that has a superblock, consensus metadata or a log; sorted by id."""
    names = set(tablet_names(files, layout.superblocks))
    names.update(tablet_names(files, layout.consensus))
    names.update(log.tablet_id for log in logs)
    return [_look(files, layout, logs, name) for name in sorted(names)]


def _look(files: Files, layout: Layout, logs: Mapping[LogId, LogState], tablet: TabletId) -> Found:
    superblock, block_error = _read(SuperblockFile(files, layout, tablet).load)
    consensus, meta_error = _read(ConsensusMetadata(files, layout, tablet).load)
    block, meta = Block.ABSENT, Meta.ABSENT
    if superblock is not None:
        block = Block(superblock.data_state.value)
    elif block_error is not None:
        block = Block.UNREADABLE
    if consensus is not None:
        meta = Meta.PRESENT
    elif meta_error is not None:
        meta = Meta.UNREADABLE
    log = _log_of(logs, tablet, superblock)
    return Found(
        tablet_id=tablet,
        superblock=superblock,
        consensus=consensus,
        log=log,
        decision=decide(block, meta, _log_finding(log)),
        errors=tuple(error for error in (block_error, meta_error) if error is not None),
    )


def _read(load: Callable[[], Record]) -> tuple[Record | None, StelaeError | None]:
    """Return what is there, or why it cannot be read; neither when it is missing."""
    try:
        return load(), None
    except MetadataMissing:
        return None, None
    except StelaeError as error:
        return None, error


def _log_of(
    logs: Mapping[LogId, LogState], tablet: TabletId, superblock: Superblock | None
) -> LogState | None:
    if superblock is not None:
        return logs.get(superblock.log_id)
    candidates = [log for log in logs if log.tablet_id == tablet]
    return logs[max(candidates)] if candidates else None


def _log_finding(log: LogState | None) -> Log:
    if log is None:
        return Log.ABSENT
    if log.damage is not None:
        return Log.DAMAGED
    return Log.EMPTY if log.last == ZERO else Log.PRESENT
