"""A replica without a log, which only votes (``ConsensusEngine.restore_voter``): a tombstone, or a copy in progress.

Ordering and durability
    Readies are carried out one after the other. Term and vote are durable before a message of that Ready, or of a later
    one, is sent (``durability.md`` rules 1 and 9). A save that fails is repeated until it succeeds, and nothing is sent
    before. Each save writes a new file, so it relies on no byte of the one that failed (rule 7). The file is not read
    again in between: its contents may be those of the failed save, and not be durable.

    A copy merges the metadata of its source through the voter (rule 20), in the same order. So a vote that the replica
    gives during the copy is never lost: it is saved before the merge, or the merge has it."""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stelae.host.consensus_metadata import ConfigRegression, VoteRegression
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

SAVE_AGAIN_US = 5_000_000
"""The pause after a save that failed for another reason than space. The disk is rarely back within moments."""


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
        self.failure = ""  #: Why it cannot vote: its last save has failed and is repeated, or it has stopped for good.
        self.hard_state = hard_state  #: The newest hard state of the core. It is durable if the voter is idle.
        self.committed_config = committed_config
        self._core = core
        self._turns = turns
        self._hard_states = hard_states
        self._network = network
        self._due: deque[_Save] = deque()
        self._saving = False
        self.stopped = False  #: It saves and sends nothing any more.
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

        ``done`` is called once. After an error the term is durable before anything else is sent, and the config is the
        old one. It may be the new one if the write failed for another reason than space. The config must not be older
        than the present one (rule 18)."""
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
        self._stop("it was closed", StorageError(f"the voter of tablet {self.tablet_id} was closed"))

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
        if self.stopped:
            return
        if isinstance(error, VoteRegression | ConfigRegression):
            log.error("tombstone votes no more tablet=%s reason=%s", self.tablet_id, error)
            self._stop(f"its vote cannot be saved: {error}", error)
        elif error is not None:
            self._repeat(error)
        else:
            if self.failure:
                log.info("tombstone votes again tablet=%s", self.tablet_id)
            self.failure, self._saving = "", False
            self._end(self._due.popleft())
            self._carry_out()

    def _repeat(self, error: StelaeError) -> None:
        """Save again after a while. The core has moved to this term, so nothing else is done before.

        Without space, further answers wait for the save. After another error none is prepared, and the file has the old
        or the new contents. So a config that it may have is saved again, although its merge has failed."""
        pause_us = REPAIR_INTERVAL_US
        if isinstance(error, Full) and not self.failure:
            self._fail_merges(error, [self._due[0]])
        else:
            if not self.failure:
                log.error("tombstone cannot vote tablet=%s reason=%s", self.tablet_id, error)
            self.failure, pause_us = f"its vote cannot be saved: {error}", SAVE_AGAIN_US
            config = self._due[0].config
            self._fail_merges(error, self._due)
            self._due[0].config = config
        self._retry = self._turns.call_at(self._turns.now_us() + pause_us, self._save)

    def _stop(self, why: str, error: StelaeError) -> None:
        """Stop for good."""
        self.stopped, self.failure = True, why
        self._fail_merges(error, self._due)

    def _fail_merges(self, error: StelaeError, saves: Iterable[_Save]) -> None:
        """Fail the merges among saves. The config stays the old one."""
        for save in saves:
            merged, save.merged, save.config = save.merged, None, None
            if merged is not None:
                merged(error)

    def _end(self, save: _Save) -> None:
        self.committed_config = save.config or self.committed_config
        if save.ready is not None:
            for outbound in (*save.ready.at_once, *save.ready.after_persist):
                self._network.send(self.tablet_id, outbound, ())
        if save.merged is not None:
            save.merged(None)
