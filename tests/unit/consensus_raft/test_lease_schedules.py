"""Random schedules of leases, and planted bugs that they must find (durability rule 13, [M])."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stelae_consensus_raft import raft_state
from stelae_consensus_raft.client_requests import ClientRequests
from stelae_consensus_raft.leader import Leader
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.read_lease import ReadLease
from tests.at_length import times
from tests.unit.consensus_raft.lease_schedules import run

SEEDS = 6
SEEDS_MAX = 60


@pytest.mark.fuzzer
@pytest.mark.parametrize("seed", range(times(SEEDS)))
def test_no_lease_answers_a_read_that_misses_a_committed_write(seed: int) -> None:
    schedule = run(seed)
    assert schedule.answered_at_once > 20, "leases were used"


# -- planted bugs ----------------------------------------------------------------------------------


def _ignores_drift(_timeout_us: int, drift_ppm_max: int) -> int:
    return _timeout_us if drift_ppm_max else 0


def _goes_on_over_a_transfer(self: ReadLease) -> None:
    """The lease is kept while the successor campaigns."""


def _ends_only_with_the_transfer(self: ReadLease) -> None:
    """The lease is given up, but the leader gets another one although the request may still arrive."""
    self._until_us = 0


_promised = ReadLease.promised
_init_promises = RaftState._init_promises
_on_reply = Leader.on_reply


def _counts_from_the_answer(self: ReadLease, round_number: int) -> None:
    before = self._until_us
    _promised(self, round_number)
    if self._until_us > before:
        self._until_us += self._length_us // 2


def _forgets_at_a_start(self: RaftState, promised_us: int) -> None:
    _init_promises(self, promised_us)
    self.withhold_until_us = 0


def _counts_any_answer(self: Leader, sender: Any, reply: Any) -> None:
    _on_reply(self, sender, msgspec.structs.replace(reply, withholds_us=self._state.timeout_us))


def _promises_while_held_back(self: RaftState) -> int:
    return self.timeout_us if self.lease_length_us and self.promises_durable and self.is_voter else 0


def _never_ends(self: ReadLease, now_us: int) -> bool:
    return bool(self._until_us)


def _reads_during_a_handover(self: ClientRequests, leadership: Any, token: int) -> None:
    leadership.lease._void, leadership.lease._until_us = False, self._state.now_us + 1
    _queue_or_answer(self, leadership, token)


_queue_or_answer = ClientRequests._queue_or_answer

PLANTED: list[tuple[Any, str, Callable[..., Any]]] = [
    (raft_state, "lease_length_us", _ignores_drift),
    (ReadLease, "give_up", _goes_on_over_a_transfer),
    (ReadLease, "give_up", _ends_only_with_the_transfer),
    (ReadLease, "promised", _counts_from_the_answer),
    (RaftState, "_init_promises", _forgets_at_a_start),
    (Leader, "on_reply", _counts_any_answer),
    (RaftState, "promised_us", _promises_while_held_back),
    (ReadLease, "is_valid", _never_ends),
    (ClientRequests, "_queue_or_answer", _reads_during_a_handover),
]


@pytest.mark.long
@pytest.mark.parametrize(("owner", "name", "bug"), PLANTED, ids=[b[2].__name__ for b in PLANTED])
def test_a_planted_bug_is_found_by_some_schedule(
    owner: Any, name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(getattr(owner, name)), "the planted bug replaces nothing"
    monkeypatch.setattr(owner, name, bug)
    for seed in range(SEEDS_MAX):
        try:
            run(seed)
        except AssertionError as error:
            assert "misses what" in str(error)
            return
    raise AssertionError(f"{bug.__name__} survives {SEEDS_MAX} schedules")
