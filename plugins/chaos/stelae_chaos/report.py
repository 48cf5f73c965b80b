"""The report of a run: what was broken, what clients got, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stelae.sim.history import ClientAction
from stelae_chaos.availability import longest_gap_ms, percentile_ms
from stelae_chaos.history import ChaosHistory
from stelae_chaos.operations import ChaosFinding, ChaosOperation, ChaosOutcome, CounterRead, RegisterCall, SnapshotRead
from stelae_chaos.spans import FaultSpan, LeaderSpan


@dataclass(slots=True, kw_only=True)
class ChaosReport:
    """The results of a run.

    Attributes:
        seed: the seed of the plan and of the clients.
        left_out: the kinds of faults that were not possible, with the reasons.
        spans: the faults.
        leaders: who led.
        begin_us: when the faults began, in microseconds since the start of the run.
        end_us: when they ended.
        findings: everything that must not happen.
        interrupted: whether the user ended the run.
        settled: whether the cluster became whole and its replicas were compared.
        disks_replaced: the number of lost disks whose replicas the masters have replaced by themselves.
        directories_checked: the number of tablet servers whose directories were searched for orphan files.
        unwritten: the files of the run that could not be written, and why.
    """

    seed: int
    left_out: Mapping[str, str]
    history: ChaosHistory = field(default_factory=ChaosHistory)
    spans: Sequence[FaultSpan] = ()
    leaders: Sequence[LeaderSpan] = ()
    begin_us: int = 0
    end_us: int = 0
    findings: list[ChaosFinding] = field(default_factory=list)
    interrupted: bool = False
    settled: bool = False
    disks_replaced: int = 0
    directories_checked: int = 0
    unwritten: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def require_load(self) -> None:
        """Add a finding for every workload in which no write was acknowledged: a run shows nothing about it."""
        for name, operations in self.history.by_workload().items():
            if not any(one.took_effect for one in operations if not is_read(one)):
                fact = "no write was acknowledged, so the run shows nothing; give it more time"
                self.findings.append(ChaosFinding(check=name, key="", fact=fact))

    def left_out_lines(self) -> list[str]:
        """Return a line for each reason why kinds of faults are left out."""
        kinds: dict[str, list[str]] = {}
        for kind, why in self.left_out.items():
            kinds.setdefault(why, []).append(kind)
        return [f"left out: {', '.join(names)}: {why}" for why, names in kinds.items()]

    def document(self) -> dict[str, Any]:
        """Return the ``--json`` document."""
        operations = [*self.history.all()]
        latencies = [one.ended_us - one.begun_us for one in operations if one.outcome is ChaosOutcome.DONE]
        gap_ms = longest_gap_ms((one for one in operations if not is_read(one)), self.begin_us, self.end_us)
        return {
            "seed": self.seed,
            "seconds": round((self.end_us - self.begin_us) / 1e6, 1),
            "faults": dict(sorted(self._done().items())),
            "left_out": dict(self.left_out),
            "workloads": {name: counted(found) for name, found in self.history.by_workload().items()},
            "p50_ms": percentile_ms(latencies, 0.5),
            "p99_ms": percentile_ms(latencies, 0.99),
            "longest_gap_ms": gap_ms,
            "settled": self.settled,
            "disks_replaced": self.disks_replaced,
            "directories_checked": self.directories_checked,
            "interrupted": self.interrupted,
            "story": [str(span).strip() for span in self.spans],
            "findings": self.findings,
            "ok": self.clean,
        }

    def _done(self) -> dict[str, int]:
        done: dict[str, int] = {}
        for span in self.spans:
            done[span.kind] = done.get(span.kind, 0) + 1
        return done


def is_read(operation: ChaosOperation) -> bool:
    """Return whether an operation writes nothing."""
    if isinstance(operation, RegisterCall):
        return operation.action is ClientAction.READ
    return isinstance(operation, CounterRead | SnapshotRead)


def counted(operations: Sequence[ChaosOperation]) -> dict[str, int]:
    """Return the numbers of a workload: writes by their outcome, and reads with an answer."""
    writes = [one for one in operations if not is_read(one)]
    return {
        "acknowledged": sum(one.took_effect for one in writes),
        "refused": sum(
            one.outcome is ChaosOutcome.REFUSED or (one.outcome is ChaosOutcome.DONE and bool(one.error))
            for one in writes
        ),
        "unknown": sum(one.outcome is ChaosOutcome.UNKNOWN for one in writes),
        "reads": sum(one.took_effect for one in operations if is_read(one)),
    }
