"""The replacements of the mutants in ``local_mutants``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stelae.spi.consensus import HardState, ReadReady
from stelae.spi.consensus_events import PersistFailed, ReadRequest
from stelae.spi.log import Entry


def commit_at_append(original: Callable[..., None], self: Any, ready_id: int, entries: Sequence[Entry]) -> None:
    """Count entries as durable before they are."""
    original(self, ready_id, entries)
    self.persisted(ready_id)


def keep_the_term(original: Callable[..., None], self: Any) -> None:
    """Lead in the same term again, after the second start."""
    term = self._hard_state.term
    original(self)
    if term > 1:
        self._hard_state = self._ready.hard_state = HardState(term, self._node_id)


def read_while_configuring(original: Callable[..., None], self: Any, event: ReadRequest) -> None:
    """Serve reads at the commit index that a restart knows, which may be behind what was acknowledged."""
    self._ready.reads_ready.append(ReadReady(event.token, self._log.commit))


def lead_on(original: Callable[..., None], self: Any, event: PersistFailed) -> None:
    """Cut the log, and lead on in the same term."""
    self._log.failed(event.durable_index)
