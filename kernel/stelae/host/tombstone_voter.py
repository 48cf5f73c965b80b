"""A replica without a log, which only votes (``ConsensusEngine.restore_voter``): a tombstone, or a copy in progress.

Ordering and durability
    Readies are carried out one after the other. Term and vote are durable before a message of that Ready, or of a later
    one, is sent (``durability.md`` rules 1 and 9). If they cannot be saved, nothing is sent any more.

    A copy merges the metadata of its source through the voter (rule 20), in the same order. So a vote that the replica
    gives during the copy is never lost: it is saved before the merge, or the merge has it."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from stelae.host.peer_codec import PeerMessage
from stelae.host.ports import HardStates, PeerNetwork, Timer, Turns
from stelae.host.replica import REPAIR_INTERVAL_US
from stelae.spi.consensus import ConsensusCore, HardState, Ready, Status
from stelae.spi.consensus_events import Event, MergeMetadata, Received, Tick
from stelae.spi.errors import Full, StelaeError, StorageError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig

log = logging.getLogger(__name__)

READIES_MAX = 64
"""The most Readies that wait for a save. Above it messages are dropped; candidates send them again."""


@dataclass(slots=True, eq=False)
class _Save:
    """A hard state to make durable, and what follows: the messages of a Ready, or the end of a merge."""

    hard_state: HardState | None
    config: TabletConfig | None = None  #: ``None``: the config stays.
    ready: Ready | None = None
    merged: Callable[[StelaeError | None], None] | None = None


class TombstoneVoter:
    """Drives one voting core, on the event loop. ``committed_config`` is saved with its term and vote.

    ``hard_state`` is the durable one, with which the core was restored."""

    def __init__(
        self,
        tablet_id: TabletId,
        core: ConsensusCore,
        hard_state: HardState,
        committed_config: TabletConfig,
        *,
        turns: Turns,
        hard_states: HardStates,
        network: PeerNetwork,
    ) -> None:
        self.tablet_id = tablet_id
        self.failure = ""
        self.hard_state = hard_state  #: The newest hard state of the core. It is durable if the voter is idle.
        self.committed_config = committed_config
        self._core = core
        self._turns = turns
        self._hard_states = hard_states
        self._network = network
        self._due: deque[_Save] = deque()
        self._saving = False
        self._retry: Timer | None = None

    @property
    def status(self) -> Status:
        """The status of the core."""
        return self._core.status()

    @property
    def idle(self) -> bool:
        """Whether all its Readies are carried out."""
        return not self._due

    def receive(self, sender: NodeId, received: PeerMessage) -> None:
        """Handle a consensus message."""
        self.deliver(Received(sender, received.message, received.entries))

    def deliver(self, event: Event) -> None:
        """Step the core with an event at once. Unlike a replica, a voter does not collect the events of a turn."""
        if not self.failure and len(self._due) < READIES_MAX:
            self._step(event)
            self._carry_out()

    def merge(self, term: int, config: TabletConfig, done: Callable[[StelaeError | None], None]) -> None:
        """Merge the term of the source of a copy, and adopt its committed config.

        ``done`` is called once. After an error the config is the old one, and the term is durable before anything else
        is sent. The config must not be older than the present one (rule 18)."""
        if self.failure:
            done(StorageError(f"the metadata of tablet {self.tablet_id} cannot be merged: {self.failure}"))
            return
        before = len(self._due)
        self._step(MergeMetadata(term))
        if len(self._due) == before:  # The term is not higher: only the config is saved.
            self._due.append(_Save(self.hard_state))
        self._due[-1].config, self._due[-1].merged = config, done
        self._carry_out()

    def close(self) -> None:
        """Save and send nothing any more. A save that is in progress may still become durable.

        A merge that waits gets an error."""
        if self._retry is not None:
            self._retry.cancel()
        self._fail("it was closed", StorageError(f"the voter of tablet {self.tablet_id} was closed"))

    def _step(self, event: Event) -> None:
        self._core.step([Tick(self._turns.now_us()), event])
        while (ready := self._core.take_ready()) is not None:
            self.hard_state = ready.hard_state or self.hard_state
            self._due.append(_Save(ready.hard_state, ready=ready))

    def _carry_out(self) -> None:
        while self._due and not self._saving and not self.failure:
            if self._due[0].hard_state is not None:
                self._saving = True
                self._save()
                return
            self._end(self._due.popleft())

    def _save(self) -> None:
        save, self._retry = self._due[0], None
        assert save.hard_state is not None
        config = save.config or self.committed_config
        self._hard_states.save(self.tablet_id, save.hard_state, config, self._saved)

    def _saved(self, error: StelaeError | None) -> None:
        if self.failure:
            return
        save = self._due[0]
        if isinstance(error, Full):
            # The core has moved to this term, so this save is repeated before anything else is done.
            merged, save.merged, save.config = save.merged, None, None
            at_us = self._turns.now_us() + REPAIR_INTERVAL_US
            self._retry = self._turns.call_at(at_us, self._save)
            if merged is not None:
                merged(error)
            return
        self._saving = False
        if error is not None:
            log.error("tombstone votes no more tablet=%s reason=%s", self.tablet_id, error)
            self._fail(f"its vote cannot be saved: {error}", error)
            return
        self._end(self._due.popleft())
        self._carry_out()

    def _fail(self, why: str, error: StelaeError) -> None:
        """Stop for good. Merges get the error, also those behind other saves."""
        self.failure = self.failure or why
        for save in self._due:
            merged, save.merged = save.merged, None
            if merged is not None:
                merged(error)

    def _end(self, save: _Save) -> None:
        self.committed_config = save.config or self.committed_config
        if save.ready is not None:
            for outbound in (*save.ready.at_once, *save.ready.after_persist):
                self._network.send(self.tablet_id, outbound, ())
        if save.merged is not None:
            save.merged(None)
