"""Bugs that are planted in the consensus engine ``raft``, each to be caught by a check of the suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from stelae.testing.conformance.consensus import ConsensusConformance, ConsensusHarness
from stelae_consensus_raft import RaftEngine


class PlantedBug(NamedTuple):
    """One planted bug.

    Attributes:
        owner: the class or module whose function is replaced.
        bug: what replaces it.
        check: how the name of the check begins, after ``test_``.
    """

    owner: Any
    name: str
    bug: Callable[..., Any]
    check: str


def names_of(planted: Sequence[tuple[Any, str, Callable[..., Any], str]]) -> list[str]:
    """Return the names of planted bugs, as pytest shows them."""
    return [bug.__name__.strip("_") for _, _, bug, _ in planted]


def raft_harness() -> ConsensusHarness:
    """Make the harness of the engine with its default settings."""
    return ConsensusHarness(RaftEngine, RaftEngine.Config(), election_timeout_us=1_000_000)


def assert_caught(planted: PlantedBug, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the check passes, and fails once the bug is planted."""
    # The shortest name: the check that is named, and not one whose name begins with it.
    method = min((m for m in dir(ConsensusConformance) if m.startswith(f"test_{planted.check}")), key=len)
    check = getattr(ConsensusConformance(), method)
    check(raft_harness())
    assert callable(getattr(planted.owner, planted.name)), "the planted bug replaces nothing"
    monkeypatch.setattr(planted.owner, planted.name, planted.bug)
    with pytest.raises(AssertionError):
        check(raft_harness())
