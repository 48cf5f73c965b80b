"""The sample of one participant in one slot, and the values of a round that are computed from samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stelae_bench.figures import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSample:
    """One measurement.

    Attributes:
        seconds: the time from the first append to the last acknowledgement.
        cpu_s: the processor time of all threads of this process meanwhile, in seconds.
        latencies_us: the latency of each entry, in the order of the acknowledgements.
        groups: the number of entries of each commit, in order.
        commits_us: the time of each commit, from the call to its return.
        problems: why appends failed; empty if none did.
    """

    seconds: float
    cpu_s: float
    latencies_us: list[float]
    groups: list[int]
    commits_us: list[float]
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalRound:
    """The values of one participant in one case of one round."""

    entries_per_s: float
    p50_us: float
    p99_us: float
    cpu_us_per_entry: float
    entries_per_group: float
    commit_p50_us: float


def round_of(samples: Sequence[WalSample]) -> WalRound:
    """Compute the values of a round from samples with at least one entry."""
    latencies_us = sorted(us for sample in samples for us in sample.latencies_us)
    entries = len(latencies_us)
    groups = sum(len(sample.groups) for sample in samples)
    return WalRound(
        entries_per_s=entries / sum(sample.seconds for sample in samples),
        p50_us=percentile(latencies_us, 0.50),
        p99_us=percentile(latencies_us, 0.99),
        cpu_us_per_entry=sum(sample.cpu_s for sample in samples) * 1e6 / entries,
        entries_per_group=entries / groups,
        commit_p50_us=percentile(sorted(us for sample in samples for us in sample.commits_us), 0.50),
    )
