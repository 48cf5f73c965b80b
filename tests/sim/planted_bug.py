"""A planted bug: a function of the product, its replacement, and the invariant that must report it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stelae.sim.profile import ProfileKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug.

    Attributes:
        rule: the rule of the design, or the section of the Raft paper, that it breaks.
        target: the function that is replaced, as ``module:Class.function`` or ``module:function``.
        replacement: called with the original function, then with the arguments of the call.
        invariant: name of the invariant that must report it.
        seed: first seed of the search for a run that shows it.
        kind: kind of the runs.
        seeds_max: number of seeds that are tried; higher for bugs that need a rare coincidence.
        constants: limits that the product has in these runs, by ``module:NAME``: short runs do not reach the real ones.
    """

    name: str
    rule: str
    target: str
    replacement: Callable[..., Any]
    invariant: str
    seed: int = 1
    seeds_max: int = 80
    kind: ProfileKind = ProfileKind.STANDARD
    constants: Mapping[str, int] = field(default_factory=dict)
