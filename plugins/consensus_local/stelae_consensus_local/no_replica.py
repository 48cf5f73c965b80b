"""The core of a tombstone: it rejects every request, and gives no vote because no replica can ask for one."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.consensus import ConsensusCore, HardState, Ready, Status
from stelae.spi.consensus_events import (
    AbortChange,
    ChangeMembers,
    Event,
    Propose,
    ReadRequest,
    RecoverAlone,
    StandDown,
    Transfer,
)
from stelae.spi.core_restore import status_without_log
from stelae.spi.ids import NodeId, OpId
from stelae.spi.rejections import RejectReason
from stelae_consensus_local.effects import LocalEffects


class NoReplicaCore(ConsensusCore):
    """A core without a log. Its term and vote never change."""

    def __init__(self, *, node_id: NodeId, hard_state: HardState, last: OpId | None) -> None:
        self._node_id = node_id
        self._hard_state = hard_state
        self._last = last
        self._ready = LocalEffects()

    def step(self, events: Sequence[Event]) -> None:
        """Reject requests, and ignore everything else."""
        for event in events:
            match event:
                case Propose():
                    for proposal in event.proposals:
                        self._ready.reject(proposal.token, RejectReason.NOT_LEADER, None)
                case ReadRequest() | Transfer() | ChangeMembers() | AbortChange() | RecoverAlone() | StandDown():
                    self._ready.reject(event.token, RejectReason.NOT_LEADER, None)
                case _:
                    continue

    def take_ready(self) -> Ready | None:
        """Return the rejections since the last call, or ``None`` if there are none."""
        return self._ready.take()

    def next_deadline(self) -> int | None:
        """Return ``None``: this core never acts by itself."""
        return None

    def status(self) -> Status:
        """Return a snapshot of the state. An unknown last op id is shown as 0.0."""
        return status_without_log(self._node_id, self._hard_state, self._last)

    def validate_state(self) -> None:
        """Check the invariant. Raises ``AssertionError`` if it does not hold."""
        assert self._last is None or self._last.term <= self._hard_state.term
