"""What one participant gave in one slot, and the figures made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stelae_bench.figures import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSample:
    """What was measured in one go.

    Attributes:
        seconds: from the first append to the last acknowledgement.
        cpu_s: processor time of this process meanwhile, of all its threads.
        latencies_us: of each entry, in order of the acknowledgements.
        groups: how many entries each commit held, in order.
        commits_us: how long each commit took, from the call to its return.
        problems: why appends were not taken; empty when all were.
    """

    seconds: float
    cpu_s: float
    latencies_us: list[float]
    groups: list[int]
    commits_us: list[float]
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalRound:
    """The figures of one participant in one case of one round."""

    entries_per_s: float
    p50_us: float
    p99_us: float
    cpu_us_per_entry: float
    entries_per_group: float
    commit_p50_us: float


def round_of(samples: Sequence[WalSample]) -> WalRound:
    """Join samples, at least one of which holds an entry."""
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
