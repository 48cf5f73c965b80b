"""The history of a run: the operations of all clients, and the judgement of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stelae_chaos.answer_check import check_answers
from stelae_chaos.append_check import AppendedRow, check_appends
from stelae_chaos.batch_check import check_batches
from stelae_chaos.counter_check import CountedRow, check_counted, check_counters
from stelae_chaos.operations import (
    AnyOperation,
    AppendCall,
    BatchWrite,
    ChaosFinding,
    CounterRead,
    Increment,
    RegisterCall,
    SnapshotRead,
)
from stelae_chaos.register_check import check_doubled, check_registers


class LastRows(NamedTuple):
    """All rows that scans of whole tables returned at the end of a run; of registers only their keys."""

    registers: Sequence[int]
    appends: Sequence[AppendedRow]
    counters: Sequence[CountedRow]


@dataclass(slots=True)
class ChaosHistory:
    """All operations of a run, by kind, in the order in which their answers arrived."""

    registers: list[RegisterCall] = field(default_factory=list)
    appends: list[AppendCall] = field(default_factory=list)
    increments: list[Increment] = field(default_factory=list)
    counter_reads: list[CounterRead] = field(default_factory=list)
    batches: list[BatchWrite] = field(default_factory=list)
    snapshots: list[SnapshotRead] = field(default_factory=list)

    def add(self, operations: Iterable[AnyOperation]) -> None:
        """Add operations."""
        for one in operations:
            match one:
                case RegisterCall():
                    self.registers.append(one)
                case AppendCall():
                    self.appends.append(one)
                case Increment():
                    self.increments.append(one)
                case CounterRead():
                    self.counter_reads.append(one)
                case BatchWrite():
                    self.batches.append(one)
                case SnapshotRead():
                    self.snapshots.append(one)

    def all(self) -> Iterator[AnyOperation]:
        """Yield all operations."""
        for operations in self.by_workload().values():
            yield from operations

    def by_workload(self) -> dict[str, Sequence[AnyOperation]]:
        """Return all operations by the name of their workload."""
        return {
            "registers": self.registers,
            "appends": self.appends,
            "counters": [*self.increments, *self.counter_reads],
            "snapshot sums": [*self.batches, *self.snapshots],
        }

    def judge(self, last: LastRows | None) -> list[ChaosFinding]:
        """Return everything that clients saw and must not see.

        Only a history with the last reads of registers, counters and groups shows every lost write.

        Args:
            last: all rows at the end; ``None``: they could not be read.
        """
        at_the_end = last and (
            *check_doubled(last.registers),
            *check_appends(self.appends, last.appends),
            *check_counted(self.increments, last.counters),
        )
        return [
            *check_answers(self.all()),
            *check_registers(self.registers),
            *(at_the_end or ()),
            *check_counters(self.increments, self.counter_reads),
            *check_batches(self.batches, self.snapshots),
        ]
