"""Reads whole logs through the contract of log engines, and says where one of them is not whole.

What an engine promises of a log is checked again here, entry by entry: indexes without a gap, terms and timestamps
that do not go back, the same op id from ``op_id_at``, and every checksum, because every body is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stelae.convert.offline import SILENT, ProgressMeter
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.wal import LogState, WalEngine

BATCH_BYTES = 4 << 20
"""Bodies held in memory at a time, but for one entry that is larger: enough that a sync weighs little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProblem:
    """Where a log is not whole. ``path`` and ``offset`` are empty where the engine does not name them. Without
    ``damage`` nothing is known to be wrong with it: the disk did not give back its bytes now."""

    path: str
    offset: int | None
    last_good: OpId
    detail: str
    damage: bool = True

    def __str__(self) -> str:
        place = f"{self.path}@{self.offset}" if self.offset is not None else self.path
        return f"{place + ': ' if place else ''}{self.detail} (last good entry: {self.last_good})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """What a whole pass over a log found; ``entries`` and ``body_bytes`` count those before the problem."""

    log: LogId
    state: LogState
    entries: int
    body_bytes: int
    problem: LogProblem | None


def entry_count(state: LogState) -> int:
    """Entries that a log says it holds."""
    return state.last.index - state.base.index


def batches(engine: WalEngine, log: LogId, first: int, end: int) -> Iterator[list[Entry]]:
    """Yield the entries ``first <= index < end`` in order, all before one that cannot be read; raises as
    ``WalEngine.read``."""
    size = BATCH_BYTES
    failure: StorageError | None = None
    while first < end:
        try:
            found = engine.read(log, first, end if failure is None else first + 1, size)
        except StorageError as error:
            if failure is not None:
                raise failure from error
            failure, size = error, 1  # One by one, then, up to the one at fault.
            continue
        if not found:
            raise Corrupt(f"the engine read nothing from entry {first} on, of those up to {end - 1} that it has")
        yield found
        first += len(found)


def check_logs(engine: WalEngine, meter: ProgressMeter = SILENT, phase: str = "checking") -> list[LogReport]:
    """Read every log of an engine to its end; one report each, by log id. A bad log does not hide the others."""
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
    """How far a pass has come: what the next entry must continue."""

    def __init__(self, base: OpId) -> None:
        self.last = base
        self.timestamp = 0
        self.entries = 0
        self.body_bytes = 0

    def misfit(self, entry: Entry) -> str | None:
        """Say why an entry does not continue what was read, or take it."""
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
            detail = f"it says it holds {state.base} to {state.last} but ends at {walk.last}"
            return LogProblem(path="", offset=None, last_good=walk.last, detail=detail)
    except StorageError as error:
        offset, detail = error.offset, getattr(error, "fact", str(error))
        damage = isinstance(error, Corrupt)
        return LogProblem(path=error.path, offset=offset, last_good=walk.last, detail=detail, damage=damage)
    return None


def problem_counts(reports: Sequence[LogReport]) -> str:
    """How many logs are damaged, and how many cannot be read now, in words; empty if all are whole."""
    bad = [report.problem for report in reports if report.problem is not None]
    damaged = sum(problem.damage for problem in bad)
    counts = ((damaged, "are damaged"), (len(bad) - damaged, "cannot be read now"))
    return ", ".join(f"{count} of {len(reports)} logs {what}" for count, what in counts if count)
