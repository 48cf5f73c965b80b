"""The results of one peer, and how Stelae's compare with them, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stelae_bench.measured_round import ClusterRound, optional_spread, quotients
from stelae_bench.peers import PeerRound

FIGURES = ("ops_per_s", "p50_ms", "p99_ms", "server_us", "client_us")


@dataclass(slots=True, kw_only=True)
class PeerFigures:
    """What was measured of one peer.

    Attributes:
        command: the command that has measured it.
        rounds: its results, by work and number in flight.
        idle_cpu_shares: the share of one processor that Stelae's idle nodes used during each run of the command.
        failure: what ended its measurements, and in which round; empty if nothing has.
    """

    command: str
    rounds: dict[tuple[str, int], list[PeerRound]] = field(default_factory=dict)
    idle_cpu_shares: list[float] = field(default_factory=list)
    failure: str = ""

    def document(self) -> dict[str, Any]:
        """Return its part of the document: all results, also those that Stelae has none beside."""
        rows = [
            {"work": work, "in_flight": in_flight, **_fields(rounds)}
            for (work, in_flight), rounds in sorted(self.rounds.items())
        ]
        return {
            "command": self.command,
            **optional_spread("idle_stelae_cpu_share", self.idle_cpu_shares),
            "failure": self.failure or None,
            "results": rows,
        }

    def beside(self, own: Sequence[ClusterRound], work: str, in_flight: int) -> dict[str, float | None]:
        """Return the fields for a row of Stelae's: the peer's figures, and Stelae's as multiples of them.

        Returns an empty ``dict`` if the peer has not measured the same."""
        rounds = self.rounds.get((work, in_flight))
        if rounds is None:
            return {}
        rates = quotients(own, rounds, lambda one: one.ops_per_s, lambda one: one.line.ops_per_s)
        latencies = quotients(own, rounds, lambda one: one.p50_ms, lambda one: one.line.p50_ms or 0.0)
        return {**_fields(rounds), **optional_spread("vs_ops_per_s", rates), **optional_spread("vs_p50_ms", latencies)}


def _fields(rounds: Sequence[PeerRound]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in FIGURES:
        values = [getattr(one.line, name) for one in rounds]
        found |= optional_spread(name, [value for value in values if value is not None])
    return found
