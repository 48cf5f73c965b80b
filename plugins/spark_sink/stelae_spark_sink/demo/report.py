"""The report of the demo: what was compared, and whether it is equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

KILLS = 2
"""Number of kills of a complete demo."""


@dataclass(slots=True, kw_only=True)
class ServerKill:
    """A tablet server that was killed while a job ran.

    Attributes:
        what: the kill, for people.
        job: the job that ran, ``write`` or ``read``.
        rows_before: rows that the job had written or read.
        rows_during: rows that the job wrote or read before the server started again.
        caught_up: whether the server has caught up since.
    """

    what: str
    job: str
    rows_before: int
    rows_during: int = 0
    caught_up: bool = False


@dataclass(slots=True, kw_only=True)
class SumPair:
    """One count or sum: of the source by plain Python, and of the table by Spark."""

    what: str
    source: int
    table: int


@dataclass(slots=True, kw_only=True)
class SparkDemoReport:
    """The results of a demo. The fields are those of the ``--json`` document."""

    rows_source: int
    batches: int = 0
    rows_read: int = 0
    rows_missing: int = 0
    rows_wrong: int = 0
    sums: list[SumPair] = field(default_factory=list)
    kills: list[ServerKill] = field(default_factory=list)
    replicas_agree: bool = False
    healthy: bool = False
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the table equals the source, the cluster is whole again, and both kills hit a running job."""
        return not self.problems

    def judge(self, *, disagreement: str, unhealthy: Sequence[str], examples: Sequence[str]) -> None:
        """Fill ``problems`` and ``healthy`` from the results.

        Args:
            disagreement: how replicas differ, if they do.
            unhealthy: the problems of the cluster.
            examples: rows that differ.
        """
        problems = list(examples)
        if self.rows_missing:
            problems.append(f"{self.rows_missing} rows of the source are not in the table")
        if self.rows_wrong:
            problems.append(f"{self.rows_wrong} rows of the table are not those of the source")
        if not self.sums:
            problems.append("no sums were compared")
        problems += [f"{p.what}: {p.source} in the source, {p.table} in the table" for p in self.unequal_sums]
        if [kill.job for kill in self.kills] != ["write", "read"]:
            problems.append(f"{len(self.kills)} of {KILLS} kills happened; the jobs ended too early")
        for kill in self.kills:
            if not (kill.rows_before and kill.rows_during):
                problems.append(f"after the {kill.what}: the job did not continue without the server")
            if not kill.caught_up:
                problems.append(f"after the {kill.what}: the server did not catch up")
        if not self.replicas_agree:
            problems.append(f"replicas do not agree: {disagreement}")
        problems += [f"the cluster is not healthy: {problem}" for problem in unhealthy]
        self.healthy = not unhealthy
        self.problems = problems

    @property
    def unequal_sums(self) -> list[SumPair]:
        """The counts and sums that differ between source and table."""
        return [pair for pair in self.sums if pair.source != pair.table]

    def document(self) -> dict[str, Any]:
        """Return the ``--json`` document."""
        return {**asdict(self), "ok": self.ok}
