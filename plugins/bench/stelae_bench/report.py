"""The report of ``stelae bench cluster``: collects rounds, and makes the document of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from stelae_bench.closed_loop import LoopSample
from stelae_bench.cluster_bulk import LoadRound
from stelae_bench.figures import Spread, percentile, spread
from stelae_bench.measured_round import ClusterRound, MeasuredRound, cost_fields, quotients
from stelae_bench.peer_figures import PeerFigures


def round_of(samples: Sequence[LoopSample]) -> ClusterRound:
    """Join the samples of all processes of one round. Each has at least one latency."""
    latencies_ms = sorted(ms for sample in samples for ms in sample.latencies_ms)
    seconds = max(s.ended for s in samples) - min(s.began for s in samples)
    return ClusterRound(
        writes=len(latencies_ms),
        ops_per_s=len(latencies_ms) / seconds,
        p50_ms=percentile(latencies_ms, 0.50),
        p99_ms=percentile(latencies_ms, 0.99),
    )


@dataclass(slots=True, kw_only=True)
class LoadFigures:
    """The bulk loads of one data set. ``scale`` is the TPC-H scale factor; ``None`` for other data."""

    scale: float | None = None
    rounds: list[LoadRound] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return its part of the document: rows, and 10^6 bytes of Arrow values, per second."""
        return {
            **_spread([one.rows / one.seconds for one in self.rounds]).fields("rows_per_s"),
            **_spread([one.value_bytes / 1e6 / one.seconds for one in self.rounds]).fields("mb_per_s"),
            **({} if self.scale is None else {"scale": self.scale}),
            "rows": sum(one.rows for one in self.rounds),
            **cost_fields(self.rounds),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRound(MeasuredRound):
    """The time of reading all rows of a table once."""

    rows: int
    seconds: float

    @property
    def operations(self) -> int:
        """The number of rows."""
        return self.rows

    @property
    def rows_per_s(self) -> float:
        """The speed."""
        return self.rows / self.seconds


@dataclass(slots=True, kw_only=True)
class ScanFigures:
    """Full scans of a table, and of a Parquet file with the same rows.

    ``vs_parquet`` is the speed as a multiple of that of Parquet, in the same round."""

    table: str
    rounds: list[ScanRound] = field(default_factory=list)
    parquet: list[ScanRound] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return its part of the document: rows per second on both sides, and their quotient."""
        speed = attrgetter("rows_per_s")
        return {
            **_spread([*map(speed, self.rounds)]).fields("rows_per_s"),
            **_spread([*map(speed, self.parquet)]).fields("parquet_rows_per_s"),
            **_spread(quotients(self.rounds, self.parquet, speed, speed)).fields("vs_parquet"),
            "table": self.table,
            "rows": max((one.rows for one in self.rounds), default=0),
            **cost_fields(self.rounds),
        }


@dataclass(slots=True, kw_only=True)
class ClusterReport:
    """Everything that was measured.

    Attributes:
        writes: rounds of one client process, by the number of writes in flight.
        writes_8x8: rounds of eight client processes with eight writes in flight each.
        fdatasync_4k_us, zmq_rtt_us: the bare machine, one value for each round.
        loads: bulk loads, by their key in the document.
        scan_unflushed, scan_flushed: full scans of rows in memory, and of rows in files.
        reads: rounds of point reads, by mode and number in flight.
        read_rows: the number of rows among which the keys of point reads were drawn.
        ycsb: rounds of the YCSB workloads, by letter and number in flight.
        left_out: what was requested and not measured, with the reason.
        machine: see ``machine.describe``; with seed, rounds and settings.
        rows_acked, rows_read: the rows that were acknowledged, and those that the final scan read.
        retries: how often clients sent an operation again during the rounds, by the code of the error.
        peers: what was measured of other systems, by name.
        problems: why the results cannot be trusted; empty if they can.
    """

    writes: dict[int, list[ClusterRound]] = field(default_factory=dict)
    writes_8x8: list[ClusterRound] = field(default_factory=list)
    fdatasync_4k_us: list[float] = field(default_factory=list)
    zmq_rtt_us: list[float] = field(default_factory=list)
    loads: dict[str, LoadFigures] = field(default_factory=dict)
    scan_unflushed: ScanFigures | None = None
    scan_flushed: ScanFigures | None = None
    reads: dict[tuple[str, int], list[ClusterRound]] = field(default_factory=dict)
    read_rows: int = 0
    ycsb: dict[tuple[str, int], list[ClusterRound]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    rows_acked: int = 0
    rows_read: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    peers: dict[str, PeerFigures] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """True if every write so far was acknowledged, and every acknowledged row was read back."""
        return not self.problems

    @property
    def ok(self) -> bool:
        """True if it is sound, and every peer was measured in all rounds."""
        return self.is_sound and not any(peer.failure for peer in self.peers.values())

    def document(self) -> dict[str, Any]:
        """Return the ``--json`` document. A value is the median; ``_min`` and ``_max`` have the extremes.

        A part that was not measured is ``None`` or an empty list."""
        loads = {name: found.document() for name, found in self.loads.items()}
        scans = {"scan_unflushed": self.scan_unflushed, "scan_flushed": self.scan_flushed}
        return {
            "writes": [
                {"in_flight": in_flight, **self._row("writes", rounds, "write", in_flight)}
                for in_flight, rounds in sorted(self.writes.items())
            ],
            "writes_8x8": {"processes": 8, "in_flight": 8, **_fields("writes", self.writes_8x8), **self._vs_one()},
            "bare": self._bare(),
            "bulk": loads.get("bulk"),
            "bulk_mixed": loads.get("bulk_mixed"),
            **{name: None if scan is None else scan.document() for name, scan in scans.items()},
            "reads": [
                {
                    "mode": mode,
                    "in_flight": n,
                    "rows": self.read_rows,
                    **self._row("ops", rounds, GETS.get(mode, ""), n),
                }
                for (mode, n), rounds in sorted(self.reads.items())
            ],
            "ycsb": [
                {"workload": letter, "in_flight": n, **self._row("ops", rounds, f"ycsb_{letter.lower()}", n)}
                for (letter, n), rounds in sorted(self.ycsb.items())
            ],
            "peers": {name: peer.document() for name, peer in self.peers.items()},
            "left_out": self.left_out,
            "machine": dict(self.machine),
            "rows_acked": self.rows_acked,
            "rows_read": self.rows_read,
            "retries": dict(self.retries),
            "problems": self.problems,
            "ok": self.ok,
        }

    def _bare(self) -> dict[str, float]:
        return {
            **_spread(self.fdatasync_4k_us).fields("fdatasync_4k_us"),
            **_spread(self.zmq_rtt_us).fields("zmq_rtt_us"),
        }

    def _row(self, counted: str, rounds: Sequence[ClusterRound], work: str, in_flight: int) -> dict[str, Any]:
        """Return the fields of one load, with those of the peers that have measured the same."""
        beside = {name: peer.beside(rounds, work, in_flight) for name, peer in self.peers.items()}
        found = {name: fields for name, fields in beside.items() if fields}
        return {**_fields(counted, rounds), **({"peers": found} if self.peers else {})}

    def _vs_one(self) -> dict[str, float]:
        """Return the rate of eight processes as a multiple of that of one process with as many writes in flight."""
        rate = attrgetter("ops_per_s")
        return _spread(quotients(self.writes_8x8, self.writes.get(64, []), rate, rate)).fields("vs_one_process")


GETS = {"latest": "get", "snapshot": "get_snapshot"}
"""The work of peers by the mode of reads."""


def _fields(counted: str, rounds: Sequence[ClusterRound]) -> dict[str, Any]:
    return {
        counted: sum(one.writes for one in rounds),
        **_spread([one.ops_per_s for one in rounds]).fields("ops_per_s"),
        **_spread([one.p50_ms for one in rounds]).fields("p50_ms"),
        **_spread([one.p99_ms for one in rounds]).fields("p99_ms"),
        **cost_fields(rounds),
    }


def _spread(values: Sequence[float]) -> Spread:
    """Return the spread of the rounds, or zero if a run ended before the first round."""
    return spread(values or (0.0,))
