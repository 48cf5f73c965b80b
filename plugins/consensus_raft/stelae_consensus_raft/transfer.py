"""Handing leadership over to another voter (behaviour C8; Raft thesis, 3.10).

The leader takes no proposals meanwhile, so that the successor can catch up with it. Once it has, it is told to campaign
at once, and its vote requests say that the leader itself wants it so: voters do not withhold their votes. If it has not
won within one election timeout, the leader carries on."""

from __future__ import annotations

from stelae.spi.consensus import MemberType, RejectReason, Role, Transfer
from stelae.spi.ids import NodeId
from stelae_consensus_raft.election import Elections
from stelae_consensus_raft.messages import TimeoutNow
from stelae_consensus_raft.replica import Handover, Leadership, Replica


class Transfers:
    """Both sides of a transfer."""

    __slots__ = ("_elections", "_replica")

    def __init__(self, replica: Replica, elections: Elections) -> None:
        self._replica = replica
        self._elections = elections

    # -- the leader's side -----------------------------------------------------------------------

    def begin(self, event: Transfer) -> None:
        """Begin to hand over, or say why not. To itself it is done already."""
        replica, lead = self._replica, self._replica.leadership
        if lead is None:
            replica.reject(event.token, RejectReason.NOT_LEADER)
        elif event.to == replica.node_id:
            replica.outbox.handed_over.append(event.token)
        elif lead.handover is not None:
            replica.reject(event.token, RejectReason.TRANSFERRING)
        elif event.to is not None and event.to not in self._able():
            replica.reject(event.token, RejectReason.NOT_A_VOTER)
        elif (to := event.to or self._best(lead)) is None:
            replica.reject(event.token, RejectReason.NO_SUCCESSOR)
        else:
            lead.handover = Handover(event.token, to, replica.now_us + replica.timeout_us)

    def _able(self) -> set[NodeId]:
        """Who may lead: voters that serve; a witness only votes."""
        members = self._replica.config.members
        return {m.node_id for m in members if m.member_type is MemberType.VOTER}

    def _best(self, lead: Leadership) -> NodeId | None:
        """The voter that has most of the log among those that were heard of within an election timeout."""
        replica, able = self._replica, self._able()
        since = replica.now_us - replica.timeout_us
        found = [peer for peer in lead.voting if peer.node_id in able and peer.heard_at_us >= since]
        best = max(found, key=lambda peer: (peer.match, peer.heard_at_us), default=None)
        return best.node_id if best is not None else None

    def flush(self) -> None:
        """Tell the successor, once it has all of the log."""
        replica, lead = self._replica, self._replica.leadership
        handover = lead.handover if lead is not None else None
        if lead is None or handover is None or handover.told:
            return
        peer = lead.peers.get(handover.to)
        if peer is not None and peer.match == replica.log.last_index:
            handover.told = True
            replica.send(handover.to, TimeoutNow(term=replica.term))

    def tick(self) -> None:
        """Carry on as leader if the successor has not won in time."""
        lead = self._replica.leadership
        if lead is not None and lead.handover is not None and self._replica.now_us >= lead.handover.deadline_us:
            self._replica.reject(lead.handover.token, RejectReason.NO_SUCCESSOR)
            lead.handover = None

    # -- the successor's side --------------------------------------------------------------------

    def on_timeout_now(self, sender: NodeId, message: TimeoutNow) -> None:
        """Campaign at once if it is our leader that wants it."""
        replica = self._replica
        if message.term != replica.term or sender != replica.leader or replica.role is not Role.FOLLOWER:
            return
        self._elections.take_over()
