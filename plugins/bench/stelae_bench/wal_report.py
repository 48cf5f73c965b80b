"""The report of ``stelae bench wal``: collects rounds, and makes the document of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stelae_bench.figures import spread
from stelae_bench.wal_cases import CEILING, ENGINES, REFERENCES, WalCase
from stelae_bench.wal_samples import WalRound

ONE = WalCase(4096, 1, 1)
MANY = WalCase(4096, 64, 1)
HUNDRED = WalCase(4096, 1, 100)

FIGURES = ("entries_per_s", "p50_us", "p99_us", "cpu_us_per_entry", "entries_per_group", "commit_p50_us")


@dataclass(slots=True, kw_only=True)
class WalReport:
    """Everything that was measured.

    Attributes:
        engines: the names of the engines behind the kernel's writer, in the order in which they are shown. The
            references follow.
        rounds: the rounds of each participant in each case.
        replays: for each reference, engine and case, the parts of the rounds in which the reference wrote the groups
            that the writer had formed for the engine.
        large_logs: for each engine, the values of each round; see ``wal_large_log``.
        machine: see ``machine.describe``; with seed, rounds and settings.
        left_out: participants that were not measured, with the reason.
        problems: why the results cannot be trusted; empty if they can.
    """

    engines: Sequence[str] = (*ENGINES, CEILING)
    rounds: dict[tuple[str, WalCase], list[WalRound]] = field(default_factory=lambda: defaultdict(list))
    replays: dict[tuple[str, str, WalCase], list[WalRound]] = field(default_factory=lambda: defaultdict(list))
    large_logs: dict[str, list[Mapping[str, float]]] = field(default_factory=lambda: defaultdict(list))
    machine: Mapping[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if every append was acknowledged."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """Return the ``--json`` document. A value is the median; ``_min`` and ``_max`` have the extremes."""
        order = (*self.engines, *REFERENCES)
        keys = sorted(self.rounds, key=lambda key: (key[1].sort_key, order.index(key[0])))
        return {
            "rows": [_row(name, case, self.rounds[name, case]) for name, case in keys],
            "ratios": [self._ratios(name) for name in self.engines if (name, MANY) in self.rounds],
            "logs": [
                {"engine": name, **_spreads({key: [one[key] for one in rounds] for key in rounds[0]})}
                for name, rounds in sorted(self.large_logs.items(), key=lambda item: order.index(item[0]))
            ],
            "machine": dict(self.machine),
            "left_out": self.left_out,
            "problems": self.problems,
            "ok": self.ok,
        }

    def _ratios(self, engine: str) -> dict[str, Any]:
        """Return the quotients within each round, so that a slow minute of the machine affects both sides."""
        found: dict[str, list[float]] = {}
        for other in REFERENCES:
            beside = self.replays.get((other, engine, MANY), [])
            found[f"vs_{other}"] = _quotients(self.rounds[engine, MANY], beside, lambda one: one.entries_per_s)
        raw = self.replays.get(("raw", engine, ONE), [])
        found["latency_vs_raw"] = _quotients(self.rounds[engine, ONE], raw, lambda one: one.p50_us)
        one, hundred = self.rounds[engine, ONE], self.rounds[engine, HUNDRED]
        quotients = _quotients(one, hundred, lambda a_round: a_round.entries_per_s)
        found["tablets_100_vs_1"] = [HUNDRED.tablets * quotient for quotient in quotients]
        # Per entry, because a group may have no entry of some tablets.
        quotients = _quotients(hundred, one, lambda a_round: a_round.commit_p50_us / a_round.entries_per_group)
        found["commit_100_vs_1"] = [HUNDRED.tablets * quotient for quotient in quotients]
        return {"engine": engine, **_spreads(found)}


def _row(name: str, case: WalCase, rounds: Sequence[WalRound]) -> dict[str, Any]:
    figures = {figure: [getattr(one, figure) for one in rounds] for figure in FIGURES}
    figures["mb_per_s"] = [value * case.entry_bytes / 1e6 for value in figures["entries_per_s"]]
    return {
        "engine": name,
        "entry_bytes": case.entry_bytes,
        "in_flight": case.in_flight,
        "tablets": case.tablets,
        "sync": case.sync.value,
        **_spreads(figures),
    }


def _spreads(figures: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the fields of all values. A value that was not measured has no field."""
    found: dict[str, float] = {}
    for name, values in figures.items():
        if values:
            found |= spread(values).fields(name)
    return found


def _quotients(
    ours: Sequence[WalRound], others: Sequence[WalRound], figure: Callable[[WalRound], float]
) -> list[float]:
    return [figure(our) / figure(other) for our, other in zip(ours, others, strict=False)]
