"""One round of one measurement: its number, its operations and their cost; quotients of rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from stelae_bench.cluster_costs import UNKNOWN_COST, Cost
from stelae_bench.figures import spread


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRound(ABC):
    """The result of one round of one measurement. ``Bench.rounds`` sets its number, from 0, and its cost."""

    number: int = 0
    cost: Cost = UNKNOWN_COST

    @property
    @abstractmethod
    def operations(self) -> int:
        """The number of operations: calls, or rows where rows are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRound(MeasuredRound):
    """One round of one load: operations per second, latencies in milliseconds."""

    writes: int
    ops_per_s: float
    p50_ms: float
    p99_ms: float

    @property
    def operations(self) -> int:
        """The number of calls."""
        return self.writes


class _Numbered(Protocol):
    @property
    def number(self) -> int: ...


_One = TypeVar("_One", bound=_Numbered)
_Other = TypeVar("_Other", bound=_Numbered)


def quotients(
    rounds: Sequence[_One], others: Sequence[_Other], value: Callable[[_One], float], other: Callable[[_Other], float]
) -> list[float]:
    """Return the quotient of two measurements for each round that has both.

    Values of one round were measured within seconds of each other. So a slow minute of the machine affects both, and
    the median of these quotients says more than the quotient of the medians."""
    by_number = {one.number: other(one) for one in others}
    return [value(one) / by_number[one.number] for one in rounds if by_number.get(one.number)]


def cost_fields(rounds: Sequence[MeasuredRound]) -> dict[str, float | None]:
    """Return the fields of a document that say what one operation costs; a field is ``None`` if that is not known.

    Processor times are in microseconds: those of all processes, of the clients, of the leader and of the followers.
    ``ops_per_entry`` counts writes only: calls that share an entry of the log share its syncs."""
    per_op: dict[str, Callable[[Cost], float | None]] = {
        "cpu_us_per_op": lambda cost: _us(cost.cpu_s),
        "client_cpu_us_per_op": lambda cost: _us(cost.client_s),
        "leader_cpu_us_per_op": lambda cost: _us(cost.leader_s),
        "followers_cpu_us_per_op": lambda cost: _us(cost.followers_s),
        "switches_per_op": lambda cost: cost.switches,
    }
    found: dict[str, float | None] = {}
    for name, value in per_op.items():
        values = [(value(one.cost), one.operations) for one in rounds]
        found |= optional_spread(name, [cost / count for cost, count in values if cost is not None and count])
    costs = [one.cost for one in rounds]
    return found | optional_spread(
        "ops_per_entry", [cost.written / cost.entries for cost in costs if cost.written and cost.entries]
    )


def optional_spread(name: str, values: Sequence[float]) -> dict[str, float | None]:
    """Return the fields of a spread; without values they are ``None``."""
    if not values:
        return {name: None, f"{name}_min": None, f"{name}_max": None}
    return {**spread(values).fields(name)}


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6
