"""The report of a demo: the kills, the rows that were read back, and whether the result is correct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

GAP_ALLOWANCE_MS = 1000
"""The longest gap without acknowledgements, in addition to two election timeouts."""

KILLS = 3
"""Number of kills of a complete demo."""


class DemoEventKind(StrEnum):
    """What a demo does to the cluster. A complete one does all of it."""

    SERVER_KILLED = "server_killed"  #: SIGKILL of a tablet server, which starts again later.
    MASTER_KILLED = "master_killed"  #: SIGKILL of the leader of the masters, which starts again later.
    DISK_LOST = "disk_lost"  #: SIGKILL of a tablet server; its directory is removed for good.
    SERVER_JOINED = "server_joined"  #: A new tablet server with an empty directory joins.


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEvent:
    """Something that a demo did.

    Attributes:
        node: the name of the node, for people.
        at_ms: the time since the load began.
        acked: number of rows that were acknowledged at that time.
    """

    kind: DemoEventKind
    node: str
    at_ms: int
    acked: int


@dataclass(slots=True, kw_only=True)
class Kill:
    """One kill of a node.

    Attributes:
        what: the kill, for people.
        missing: what was not possible until the cluster recovered, for people.
        acked_at_kill: number of rows that were acknowledged before the kill.
        at: time of the kill, by the clock of the load.
        within_load: whether the load still ran when the cluster had recovered.
        unavailable_ms: how long ``missing`` was not possible.
        bounded: whether the run fails if that was too long.
    """

    what: str
    missing: str
    acked_at_kill: int
    at: float
    within_load: bool = False
    unavailable_ms: int = 0
    bounded: bool = True


@dataclass(slots=True, kw_only=True)
class DemoReport:
    """The results of a demo. The fields are those of the ``--json`` document."""

    rows_source: int
    masters: int
    tablets: int
    election_timeout_ms: int
    rows_acked: int = 0
    rows_read: int = 0
    rows_lost: int = 0
    rows_wrong: int = 0
    events: list[DemoEvent] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    healed_ms: int = 0  #: From the loss of a server until every tablet had all of its replicas again.
    replicas_agree: bool = False
    healthy: bool = False
    rows_per_s: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def gap_ms_max(self) -> int:
        """The longest gap that is allowed."""
        return 2 * self.election_timeout_ms + GAP_ALLOWANCE_MS

    @property
    def ok(self) -> bool:
        """Whether no row is lost or wrong, all replicas agree, the cluster is healthy, and no gap was too long."""
        return not self.problems

    def judge(self, *, disagreement: str, unhealthy: Sequence[str], examples: Sequence[str]) -> None:
        """Fill ``problems`` and ``healthy`` from the results.

        Args:
            disagreement: how replicas differ, if they do.
            unhealthy: the problems of the cluster.
            examples: rows and errors that show what went wrong.
        """
        problems = list(examples)
        if self.rows_acked != self.rows_source:
            problems.append(f"{self.rows_source - self.rows_acked} rows were not acknowledged")
        if self.rows_lost:
            problems.append(f"{self.rows_lost} acknowledged rows are lost")
        if self.rows_wrong:
            problems.append(f"{self.rows_wrong} rows differ from the source")
        if not self.replicas_agree:
            problems.append(f"replicas do not agree: {disagreement}")
        problems += [f"the cluster is not healthy: {problem}" for problem in unhealthy]
        if len(self.kills) != KILLS or not all(kill.within_load for kill in self.kills):
            problems.append(f"the load ended before the cluster had recovered from {KILLS} kills; load a larger file")
        if missing := [kind for kind in DemoEventKind if kind not in {event.kind for event in self.events}]:
            problems.append(f"the run is not complete: {', '.join(missing)} did not happen")
        for kill in self.kills:
            if kill.bounded and kill.unavailable_ms > self.gap_ms_max:
                fact = f"{kill.missing} for {kill.unavailable_ms} ms, at most {self.gap_ms_max} ms are allowed"
                problems.append(f"after the {kill.what}: {fact}")
        self.healthy = not unhealthy
        self.problems = problems

    def document(self) -> dict[str, Any]:
        """Return the ``--json`` document."""
        kills = [
            {"what": kill.what, "acked_at_kill": kill.acked_at_kill, "unavailable_ms": kill.unavailable_ms}
            for kill in self.kills
        ]
        names = ("masters", "tablets", "rows_source", "rows_acked", "rows_read", "rows_lost", "rows_wrong")
        return {
            **{name: getattr(self, name) for name in names},
            "events": [asdict(event) for event in self.events],
            "kills": kills,
            "healed_ms": self.healed_ms,
            "election_timeout_ms": self.election_timeout_ms,
            "replicas_agree": self.replicas_agree,
            "healthy": self.healthy,
            "rows_per_s": self.rows_per_s,
            "problems": self.problems,
            "ok": self.ok,
        }
