"""A replica without a log, which only votes (``ConsensusEngine.restore_voter``): a tombstone, or a copy in progress.

Ordering and durability
    Readies are carried out one after the other. Term and vote are durable before a message of that Ready, or of a later
    one, is sent (``durability.md`` rules 1 and 9). If they cannot be saved, nothing is sent any more."""

import logging
from collections import deque

from stelae.host.peer_codec import PeerMessage
from stelae.host.ports import HardStates, PeerNetwork, Timer, Turns
from stelae.host.replica import REPAIR_INTERVAL_US
from stelae.spi.consensus import ConsensusCore, Ready, Status
from stelae.spi.consensus_events import Event, Received, Tick
from stelae.spi.errors import Full, StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.members import TabletConfig

log = logging.getLogger(__name__)

READIES_MAX = 64
"""The most Readies that wait for a save. Above it messages are dropped; candidates send them again."""


class TombstoneVoter:
    """Drives one voting core, on the event loop. ``committed_config`` is saved with its term and vote, unchanged."""

    def __init__(
        self,
        tablet_id: TabletId,
        core: ConsensusCore,
        committed_config: TabletConfig,
        *,
        turns: Turns,
        hard_states: HardStates,
        network: PeerNetwork,
    ) -> None:
        self.tablet_id = tablet_id
        self.failure = ""
        self._core = core
        self._config = committed_config
        self._turns = turns
        self._hard_states = hard_states
        self._network = network
        self._readies: deque[Ready] = deque()
        self._saving = False
        self._retry: Timer | None = None

    @property
    def status(self) -> Status:
        """The status of the core."""
        return self._core.status()

    @property
    def idle(self) -> bool:
        """Whether all its Readies are carried out."""
        return not self._readies

    def receive(self, sender: NodeId, received: PeerMessage) -> None:
        """Handle a consensus message."""
        self.deliver(Received(sender, received.message, received.entries))

    def deliver(self, event: Event) -> None:
        """Step the core with an event at once. Unlike a replica, a voter does not collect the events of a turn."""
        if self.failure or len(self._readies) >= READIES_MAX:
            return
        self._core.step([Tick(self._turns.now_us()), event])
        while (ready := self._core.take_ready()) is not None:
            self._readies.append(ready)
        self._carry_out()

    def close(self) -> None:
        """Save and send nothing any more. A save that is in progress may still become durable."""
        self.failure = "it was closed"
        if self._retry is not None:
            self._retry.cancel()

    def _carry_out(self) -> None:
        while self._readies and not self._saving and not self.failure:
            if self._readies[0].hard_state is not None:
                self._saving = True
                self._save()
                return
            self._send(self._readies.popleft())

    def _save(self) -> None:
        hard_state, self._retry = self._readies[0].hard_state, None
        assert hard_state is not None
        self._hard_states.save(self.tablet_id, hard_state, self._config, self._saved)

    def _saved(self, error: StelaeError | None) -> None:
        if self.failure:
            return
        if isinstance(error, Full):
            # The core has moved to this term, so this save is repeated before anything else is done.
            at_us = self._turns.now_us() + REPAIR_INTERVAL_US
            self._retry = self._turns.call_at(at_us, self._save)
            return
        self._saving = False
        if error is not None:
            self.failure = f"its vote cannot be saved: {error}"
            log.error("tombstone votes no more tablet=%s reason=%s", self.tablet_id, error)
            return
        self._send(self._readies.popleft())
        self._carry_out()

    def _send(self, ready: Ready) -> None:
        for outbound in (*ready.at_once, *ready.after_persist):
            self._network.send(self.tablet_id, outbound, ())
