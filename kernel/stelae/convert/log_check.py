"""Reads complete logs through the contract of log engines, and reports the first problem of each log.

It checks what an engine promises about a log, entry by entry: indexes without a gap, terms and timestamps that do not
decrease, and the same op id from ``op_id_at``. Every checksum is verified, because every body is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stelae.convert.offline import SILENT, ProgressMeter
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import LogState, WalEngine

BATCH_BYTES = 4 << 20
"""Bytes of bodies that are read at a time, unless one entry is larger. So the syncs of a copy cost little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProblem:
    """Why a log cannot be read to its end."""

    path: str  #: Empty if the engine does not name it.
    offset: int | None  #: ``None`` if the engine does not name it.
    last_good: OpId  #: Op id of the last entry before the problem.
    detail: str
    damage: bool = True  #: False: the disk cannot be read now, and nothing is known to be wrong with the log.

    def __str__(self) -> str:
        place = f"{self.path}@{self.offset}" if self.offset is not None else self.path
        return f"{place + ': ' if place else ''}{self.detail} (last good entry: {self.last_good})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """The result of reading one log. ``entries`` and ``body_bytes`` count the entries before the problem."""

    log: LogId
    state: LogState
    entries: int
    body_bytes: int
    problem: LogProblem | None


def entry_count(state: LogState) -> int:
    """Return the number of entries that a log has according to its state."""
    return state.last.index - state.base.index


def batches(engine: WalEngine, log: LogId, first: int, end: int) -> Iterator[list[Entry]]:
    """Yield the entries ``first <= index < end`` in batches, in order.

    If an entry cannot be read, all entries before it are yielded before the error is raised, as ``WalEngine.read``."""
    size = BATCH_BYTES
    failure: StorageError | None = None
    while first < end:
        try:
            found = engine.read(log, first, end if failure is None else first + 1, size)
        except StorageError as error:
            if failure is not None:
                raise failure from error
            failure, size = error, 1  # Read one by one up to the entry at fault.
            continue
        if not found:
            raise Corrupt(f"the engine returned no entry from {first} on, although the log ends at {end - 1} or later")
        yield found
        first += len(found)


def check_logs(engine: WalEngine, meter: ProgressMeter = SILENT, phase: str = "checking") -> list[LogReport]:
    """Read every log of an engine; return one report for each log, by log id. A bad log does not stop the others."""
    logs = engine.logs()
    meter.begin(phase, sum(entry_count(state) for state in logs.values()))
    return [check_log(engine, log, logs[log], meter) for log in sorted(logs)]


def check_log(engine: WalEngine, log: LogId, state: LogState, meter: ProgressMeter = SILENT) -> LogReport:
    """Read one log to its end."""
    walk = _LogPass(state.base)
    problem = _walk(engine, log, state, walk, meter)
    if problem is None and state.damage is not None:
        found = state.damage
        damage, good = not found.unread, found.last_good
        problem = LogProblem(path=found.path, offset=found.offset, last_good=good, detail=found.detail, damage=damage)
    return LogReport(log=log, state=state, entries=walk.entries, body_bytes=walk.body_bytes, problem=problem)


class _LogPass:
    """The state of reading one log: what the next entry must continue."""

    def __init__(self, base: OpId) -> None:
        self.last = base
        self.timestamp = 0
        self.entries = 0
        self.body_bytes = 0

    def misfit(self, entry: Entry) -> str | None:
        """Count an entry, or return why it does not continue the entries before it."""
        if entry.op_id.index != self.last.index + 1 or entry.op_id.term < self.last.term:
            return f"entry {entry.op_id} does not follow {self.last}"
        if entry.timestamp < self.timestamp:
            return f"entry {entry.op_id} has timestamp {entry.timestamp}, below {self.timestamp} before it"
        self.last, self.timestamp = entry.op_id, entry.timestamp
        self.entries += 1
        self.body_bytes += len(entry.body)
        return None


def _walk(engine: WalEngine, log: LogId, state: LogState, walk: _LogPass, meter: ProgressMeter) -> LogProblem | None:
    try:
        for batch in batches(engine, log, state.base.index + 1, state.last.index + 1):
            before = walk.body_bytes
            for entry in batch:
                if (reason := walk.misfit(entry)) is not None:
                    return LogProblem(path="", offset=None, last_good=walk.last, detail=reason)
            meter.add(len(batch), walk.body_bytes - before)
        if walk.last != state.last or engine.op_id_at(log, state.base.index) != state.base:
            detail = f"its state says {state.base} to {state.last}, but it ends at {walk.last}"
            return LogProblem(path="", offset=None, last_good=walk.last, detail=detail)
    except StorageError as error:
        offset, detail = error.offset, getattr(error, "fact", str(error))
        damage = isinstance(error, Corrupt)
        return LogProblem(path=error.path, offset=offset, last_good=walk.last, detail=detail, damage=damage)
    return None


def problem_counts(reports: Sequence[LogReport]) -> str:
    """Return in words how many logs are damaged and how many cannot be read now; empty if all are good."""
    bad = [report.problem for report in reports if report.problem is not None]
    damaged = sum(problem.damage for problem in bad)
    counts = ((damaged, "are damaged"), (len(bad) - damaged, "cannot be read now"))
    return ", ".join(f"{count} of {len(reports)} logs {what}" for count, what in counts if count)
