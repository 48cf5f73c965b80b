"""The replacements of the mutants in ``retention_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from typing import Any

from tests.sim.mutations import Original


def retain_nothing_as_follower(original: Original, self: Any, index: int) -> None:
    original(self, self.commit if self.leadership is None else index)


def count_only_peers_that_were_heard(original: Original, self: Any, lead: Any) -> None:
    heard = [peer.match for peer in lead.peers.values() if peer.match]
    self._state.advance_all_replicated(min([self._state.durable.index, *heard]))


def start_without_retention(original: Original, self: Any, flushed: int, *state: Any) -> None:
    original(self, flushed, *state)
    self._all_replicated_index = flushed
