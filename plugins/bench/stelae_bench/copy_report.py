"""The report of ``stelae bench copy``: collects the rounds, and makes the document of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stelae_bench.figures import spread
from stelae_bench.measured_round import ClusterRound

AIM_SPEED, AIM_WRITES, AIM_TABLETS_PER_S = 0.6, 0.7, 20.0
"""The least speed as a share of ``cp`` with sync, the least share of the rate of writes beside a copy, and the least
number of empty tablets moved in a second."""

NAMES = {1: "one_source", 2: "two_sources"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCopyRound:
    """The files of a tablet, copied with ``cp`` and sync."""

    seconds: float
    copied_bytes: int

    @property
    def mb_per_s(self) -> float:
        """10^6 bytes in a second."""
        return self.copied_bytes / 1e6 / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRound(FileCopyRound):
    """One copy: its time from the order to the vote of the new replica, and the processor time at both ends.

    ``None``: the system does not tell processor times."""

    source_cpu_s: float | None
    target_cpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRound:
    """A copy that was interrupted.

    Attributes:
        whole_bytes: the bytes that a copy moves if nothing interrupts it.
        stored_bytes: what the target had stored when a process was killed.
        moved_bytes: what was moved in all, before and after that.
    """

    whole_bytes: int
    stored_bytes: int
    moved_bytes: int

    @property
    def twice_bytes(self) -> int:
        """The bytes that were moved twice."""
        return max(0, self.moved_bytes - self.whole_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletsRound:
    """Empty tablets that were moved, and the processor time of the two servers and of the master, if it is known."""

    tablets: int
    seconds: float
    source_cpu_s: float | None
    target_cpu_s: float | None
    master_cpu_s: float | None


@dataclass(slots=True, kw_only=True)
class CopyReport:
    """Everything that was measured.

    Attributes:
        copies: rounds by the number of sources.
        file_copies: rounds of ``cp`` with sync.
        writes_alone, writes_beside: rounds of writes without and with a copy beside them.
        copies_beside: the copies beside the writes.
        resumes: interrupted copies by what was killed.
        moved: the empty tablets; ``None``: not measured.
        machine: see ``machine.describe``; with seed, rounds and settings.
        rows_acked, rows_read: the rows that were acknowledged, and those that the final scan read.
        problems: why the results cannot be trusted; empty if they can.
    """

    copies: dict[int, list[CopyRound]] = field(default_factory=dict)
    file_copies: list[FileCopyRound] = field(default_factory=list)
    writes_alone: list[ClusterRound] = field(default_factory=list)
    writes_beside: list[ClusterRound] = field(default_factory=list)
    copies_beside: list[CopyRound] = field(default_factory=list)
    resumes: dict[str, ResumeRound] = field(default_factory=dict)
    moved: TabletsRound | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    rows_acked: int = 0
    rows_read: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every copy has the rows of its source, and every acknowledged row was read back."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """Return the ``--json`` document. A value is the median; ``_min`` and ``_max`` have the extremes.

        Ratios are computed within each round. A part that was not measured is ``None``."""
        return {
            "speed": self._speed(),
            "writes": self._writes(),
            "resume": {name: _resume(one) for name, one in self.resumes.items()} or None,
            "tablets": None if self.moved is None else _tablets(self.moved),
            "machine": dict(self.machine),
            "rows_acked": self.rows_acked,
            "rows_read": self.rows_read,
            "problems": self.problems,
            "ok": self.ok,
        }

    def _speed(self) -> dict[str, Any] | None:
        if not self.file_copies or not all(self.copies.get(number) for number in NAMES):
            return None
        beside = self.file_copies
        sources = {NAMES[number]: _copies(rounds, beside) for number, rounds in self.copies.items()}
        return {
            **sources,
            "cp": {**spread([one.mb_per_s for one in beside]).fields("mb_per_s"), "bytes": beside[-1].copied_bytes},
            "aim_vs_cp": AIM_SPEED,
            "aim_reached": all(one["vs_cp"] >= AIM_SPEED for one in sources.values()),
        }

    def _writes(self) -> dict[str, Any] | None:
        pairs = list(zip(self.writes_alone, self.writes_beside, strict=False))
        if not pairs:
            return None
        kept = spread([beside.ops_per_s / alone.ops_per_s for alone, beside in pairs])
        return {
            "alone": _loops(self.writes_alone),
            "beside_copy": _loops(self.writes_beside),
            "copy": _copies(self.copies_beside, None),
            **kept.fields("kept"),
            "aim_kept": AIM_WRITES,
            "aim_reached": kept.median >= AIM_WRITES,
        }


def _copies(rounds: Sequence[CopyRound], beside: Sequence[FileCopyRound] | None) -> dict[str, Any]:
    """Return the figures of copies; with ``vs_cp`` if they were made beside ``cp``."""
    pairs = zip(rounds, beside or (), strict=False)
    return {
        **spread([one.mb_per_s for one in rounds]).fields("mb_per_s"),
        **({} if beside is None else spread([own.mb_per_s / cp.mb_per_s for own, cp in pairs]).fields("vs_cp")),
        **spread([one.seconds for one in rounds]).fields("seconds"),
        **_cpu("source_cpu_s", [one.source_cpu_s for one in rounds]),
        **_cpu("target_cpu_s", [one.target_cpu_s for one in rounds]),
        "bytes": rounds[-1].copied_bytes,
    }


def _loops(rounds: Sequence[ClusterRound]) -> dict[str, Any]:
    return {
        "writes": sum(one.writes for one in rounds),
        **spread([one.ops_per_s for one in rounds]).fields("ops_per_s"),
        **spread([one.p50_ms for one in rounds]).fields("p50_ms"),
        **spread([one.p99_ms for one in rounds]).fields("p99_ms"),
    }


def _resume(one: ResumeRound) -> dict[str, Any]:
    return {
        "bytes": one.whole_bytes,
        "bytes_stored": one.stored_bytes,
        "bytes_moved": one.moved_bytes,
        "bytes_twice": one.twice_bytes,
        "share_twice": round(one.twice_bytes / one.whole_bytes, 6) if one.whole_bytes else 0.0,
    }


def _tablets(one: TabletsRound) -> dict[str, Any]:
    per_s = one.tablets / one.seconds
    return {
        "tablets": one.tablets,
        "seconds": round(one.seconds, 2),
        "tablets_per_s": round(per_s, 2),
        "source_cpu_s": _rounded(one.source_cpu_s),
        "target_cpu_s": _rounded(one.target_cpu_s),
        "master_cpu_s": _rounded(one.master_cpu_s),
        "aim_tablets_per_s": AIM_TABLETS_PER_S,
        "aim_reached": per_s >= AIM_TABLETS_PER_S,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _cpu(name: str, values: Sequence[float | None]) -> dict[str, Any]:
    """Return the processor time of the rounds; ``None`` if the system does not tell it."""
    known = [value for value in values if value is not None]
    return spread(known).fields(name) if known else {name: None}
