"""Arithmetic of majorities. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def majority_of(voters: int) -> int:
    """Return how many of a number of voters are a majority."""
    return voters // 2 + 1


def reached_by(majority: int, values: Iterable[int]) -> int:
    """Return the highest value that at least ``majority`` of the voters have reached, by the value of each voter."""
    return sorted(values, reverse=True)[majority - 1]
