"""What a planted bug is: a function of the product, what replaces it, and the invariant that must report it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug.

    Attributes:
        rule: what it breaks: a rule of the design, or a section of the Raft paper.
        target: the function that is replaced.
        replacement: called with the original, then with the call's arguments.
        invariant: the one that must report it.
        seed: where the search for a run that shows it begins.
        seeds_max: how many seeds are tried; more for what needs a rare coincidence.
    """

    name: str
    rule: str
    target: str
    replacement: Callable[..., Any]
    invariant: str
    seed: int = 1
    seeds_max: int = 80
