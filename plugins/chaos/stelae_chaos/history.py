"""The history of a run: the operations of all clients, and the judgement of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from stelae_chaos.append_check import AppendedRow, check_appends
from stelae_chaos.batch_check import check_batches
from stelae_chaos.counter_check import check_counters
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
from stelae_chaos.register_check import check_registers


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

    def judge(self, appended: Sequence[AppendedRow] | None) -> list[ChaosFinding]:
        """Return everything that clients saw and must not see.

        Only a history with the last reads of registers, counters and groups shows every lost write.

        Args:
            appended: all rows of the table of appends at the end; ``None``: it could not be read.
        """
        return [
            *check_registers(self.registers),
            *([] if appended is None else check_appends(self.appends, appended)),
            *check_counters(self.increments, self.counter_reads),
            *check_batches(self.batches, self.snapshots),
        ]
