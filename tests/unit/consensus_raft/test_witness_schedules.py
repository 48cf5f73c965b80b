"""Random schedules of witnesses, and planted bugs that they must find (durability rule 12, [M])."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.spi.members import MemberType
from stelae_consensus_raft.leader_state import LeaderState
from stelae_consensus_raft.leadership_transfer import RaftTransfers
from stelae_consensus_raft.membership import RaftMembership
from stelae_consensus_raft.progress import Progress
from stelae_consensus_raft.raft_state import RaftState
from tests.at_length import times
from tests.unit.consensus_raft.witness_schedules import run

SEEDS = 8
SEEDS_MAX = 60


@pytest.mark.fuzzer
@pytest.mark.parametrize("seed", range(times(SEEDS)))
def test_witnesses_lose_nothing_and_serve_nobody(seed: int) -> None:
    assert run(seed).cluster.committed


def test_the_schedules_reach_caretakers_and_copied_rows() -> None:
    found = [run(seed) for seed in range(SEEDS, SEEDS + 8)]
    assert {"witness added", "rows copied"} <= {what for schedule in found for what in schedule.seen}
    assert sum(schedule.caretakers for schedule in found) >= 3


# -- planted bugs ----------------------------------------------------------------------------------


def _serves_as_a_caretaker(self: RaftState) -> None:
    self.serving = self.term > 0 and self.log.term_at(self.commit) == self.term
    self.is_caretaker = False


def _keeps_the_office(self: RaftTransfers, leadership: LeaderState) -> None:
    return None


_load_members = RaftState._load_members


def _lets_no_witness_win(self: RaftState) -> None:
    _load_members(self)
    self._may_campaign = self._may_campaign and not self.is_caretaker


def _promotes_without_rows(self: RaftMembership, peer: Progress, now: MemberType) -> MemberType | None:
    if now is MemberType.WITNESS:
        return MemberType.VOTER
    return _promoted(self, peer, now)


_promoted = RaftMembership._promoted


PLANTED: list[tuple[Any, str, Callable[..., Any], str]] = [
    (RaftState, "refresh_serving", _serves_as_a_caretaker, "without rows serves"),
    (RaftTransfers, "_hand_back", _keeps_the_office, "no leader that serves"),
    (RaftState, "_load_members", _lets_no_witness_win, "no leader that serves"),
    (RaftMembership, "_promoted", _promotes_without_rows, "without rows became a VOTER"),
]


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name", "bug", "invariant"), PLANTED, ids=[b[2].__name__ for b in PLANTED])
def test_a_planted_bug_is_found_by_some_schedule(
    owner: Any, name: str, bug: Callable[..., Any], invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(getattr(owner, name)), "the planted bug replaces nothing"
    monkeypatch.setattr(owner, name, bug)
    for seed in range(SEEDS_MAX):
        try:
            run(seed)
        except AssertionError as error:
            assert invariant in str(error)
            return
    raise AssertionError(f"{bug.__name__} survives {SEEDS_MAX} schedules")
