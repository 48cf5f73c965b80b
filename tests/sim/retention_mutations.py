"""What the mutants of ``retention_mutants`` put in place of the product's functions.

Each takes the original function first, then the arguments of the call."""

from __future__ import annotations

from typing import Any

from tests.sim.mutations import Original


def follow_and_hold_nothing(original: Original, self: Any, index: int) -> None:
    original(self, self.commit if self.leadership is None else index)


def count_only_peers_that_were_heard(original: Original, self: Any, lead: Any) -> None:
    heard = [peer.match for peer in lead.peers.values() if peer.match]
    self._state.advance_all_replicated(min([self._state.durable.index, *heard]))


def start_without_holding(original: Original, self: Any, flushed: int, *state: Any) -> None:
    original(self, flushed, *state)
    self._all_replicated_index = flushed
