"""Leadership transfer to another voter (behaviour C8; Raft thesis, 3.10).

During a transfer the leader accepts no proposals, so that the successor can catch up. Once the successor has all of the
log, the leader sends it ``TimeoutNow``, and it campaigns at once. Its vote requests say that the leader asked for the
campaign, so voters do not withhold their votes. If the successor has not won within one election timeout, the leader
remains leader and accepts proposals again. A voter that the leader has not heard lately is no successor, and a voter
that lags is none that can be named: the transfer would only stop proposals."""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Transfer
from stelae.spi.ids import NodeId
from stelae.spi.members import MemberType
from stelae.spi.rejections import RejectReason
from stelae_consensus_raft.election import Elections
from stelae_consensus_raft.leader_state import Handover, LeaderState
from stelae_consensus_raft.messages import TimeoutNow
from stelae_consensus_raft.progress import PeerState, Progress
from stelae_consensus_raft.raft_state import RaftState


class RaftTransfers:
    """Both sides of a leadership transfer."""

    __slots__ = ("_elections", "_state")

    def __init__(self, state: RaftState, elections: Elections) -> None:
        self._state = state
        self._elections = elections

    # -- the leader's side -----------------------------------------------------------------------

    def begin(self, event: Transfer) -> None:
        """Begin a transfer, or reject it with the reason. A transfer to this leader itself is done at once."""
        state, leadership = self._state, self._state.leadership
        if leadership is None:
            state.reject(event.token, RejectReason.NOT_LEADER)
        elif event.to == state.node_id:
            state.ready.handed_over.append(event.token)
        elif leadership.handover is not None:
            state.reject(event.token, RejectReason.TRANSFERRING)
        elif event.to is not None and event.to not in self._eligible():
            state.reject(event.token, RejectReason.NOT_A_VOTER, self._not_a_voter(event.to))
        elif event.to is not None and (
            why := self._cannot_take_over(leadership.peers[event.to]) or self._lags(leadership.peers[event.to])
        ):
            state.reject(event.token, RejectReason.NO_SUCCESSOR, f"{why}, and hand over then, or to another voter")
        elif (to := event.to or self._best_successor(leadership)) is None:
            state.reject(event.token, RejectReason.NO_SUCCESSOR)
        else:
            leadership.handover = Handover(event.token, to, state.now_us + state.timeout_us)

    def _not_a_voter(self, to: NodeId) -> str:
        member = self._state.config.member(to)
        fact = f"node {to} is {'not a member' if member is None else member.member_type}"
        return f"{fact}; hand over to one of the voters: {', '.join(sorted(self._eligible()))}"

    def begin_for_change(self, token: int) -> None:
        """Hand over because a change of config would end this leadership. The token is rejected in any case."""
        state, leadership = self._state, self._state.leadership
        assert leadership is not None
        to = self._best_successor(leadership)
        if to is None:
            state.reject(token, RejectReason.NO_SUCCESSOR)
        else:
            leadership.handover = Handover(token, to, state.now_us + state.timeout_us, for_change=True)

    def abort_change(self) -> bool:
        """Cancel a handover for a change of config. Returns false if there is none, or if it cannot be cancelled."""
        leadership = self._state.leadership
        handover = leadership.handover if leadership is not None else None
        if leadership is None or handover is None or not handover.for_change or handover.timeout_now_sent:
            return False
        assert handover.token is not None
        self._state.reject(handover.token, RejectReason.ABORTED)
        leadership.handover = None
        return True

    def resign(self) -> None:
        """End a leadership that the committed config does not allow any more. The best successor campaigns at once."""
        state, leadership = self._state, self._state.leadership
        assert leadership is not None
        to = self._best_successor(leadership)
        if to is not None:
            state.send(to, TimeoutNow(term=state.term))
        state.take_role_in_config()

    def _eligible(self) -> set[NodeId]:
        """Return the members that may lead for longer than a caretaker: voters, but no witnesses."""
        members = self._state.config.members
        return {m.node_id for m in members if m.member_type is MemberType.VOTER}

    def _cannot_take_over(self, peer: Progress) -> str:
        """Return why a voter cannot take over now, and after a semicolon what to do first, or an empty text.

        A transfer to it would only stop writes for one election timeout."""
        state = self._state
        if not peer.followed_since(state.now_us - state.timeout_us):
            timeout_ms = state.settings.election_timeout_ms
            return f"node {peer.node_id} has not answered this leader for {timeout_ms} ms; start it"
        if peer.log_only:
            return f"node {peer.node_id} has the log only, and would serve no requests; wait until it has all rows"
        return ""

    def _lags(self, peer: Progress) -> str:
        """Return why a voter could not catch up soon, and what to do first, or an empty text.

        The policy would name it again and again, for example after a restart of its node."""
        state = self._state
        if peer.state is PeerState.COPY:
            return f"node {peer.node_id} needs a copy of the rows; wait until it has them"
        last = state.log.last_index
        unsent = state.sizes.between(peer.next - 1, last) if peer.state is PeerState.REPLICATE else 0
        if unsent <= state.settings.append_bytes_max:
            return ""
        return f"the log of node {peer.node_id} ends at {peer.match} of {last}; wait until it has caught up"

    def _best_successor(self, leadership: LeaderState, match_min: int = 0) -> NodeId | None:
        """Return the voter with the longest log among those that can take over, if any.

        Its log must reach ``match_min``."""
        eligible = self._eligible()
        able = [
            peer
            for peer in leadership.voting
            if peer.node_id in eligible and peer.match >= match_min and not self._cannot_take_over(peer)
        ]
        best = max(able, key=lambda peer: (peer.match, peer.heard_at_us), default=None)
        return best.node_id if best is not None else None

    def flush(self) -> None:
        """Ask the successor to campaign, once, when it has all of the log. A caretaker chooses one by itself."""
        state, leadership = self._state, self._state.leadership
        if leadership is None:
            return
        if state.is_caretaker and leadership.handover is None:
            self._hand_back(leadership)
        handover = leadership.handover
        if handover is None or handover.timeout_now_sent:
            return
        peer = leadership.peers.get(handover.to)
        if peer is not None and peer.match == state.log.last_index:
            handover.timeout_now_sent = True
            leadership.lease.give_up()
            state.send(handover.to, TimeoutNow(term=state.term))

    def _hand_back(self, leadership: LeaderState) -> None:
        """Begin to hand over to the first voter that has all of a caretaker's log (durability rule 12)."""
        state = self._state
        to = self._best_successor(leadership, state.log.last_index)
        if to is not None:
            leadership.handover = Handover(None, to, state.now_us + state.timeout_us)

    def tick(self) -> None:
        """Give up the transfer if the successor has not won in time."""
        leadership = self._state.leadership
        handover = leadership.handover if leadership is not None else None
        if leadership is None or handover is None or self._state.now_us < handover.deadline_us:
            return
        if handover.token is not None:
            self._state.reject(handover.token, RejectReason.NOT_TAKEN_OVER, self._not_taken_over(leadership, handover))
        leadership.handover = None

    def _not_taken_over(self, leadership: LeaderState, handover: Handover) -> str:
        peer, last = leadership.peers.get(handover.to), self._state.log.last_index
        match = 0 if peer is None else peer.match
        lag = f", whose log ends at {match} of {last}" if match < last else ""
        fact = f"node {handover.to}{lag} did not take over within {self._state.settings.election_timeout_ms} ms"
        return f"{fact}, in which no writes were accepted; look at that node before the next attempt"

    # -- the successor's side --------------------------------------------------------------------

    def on_timeout_now(self, sender: NodeId, message: TimeoutNow) -> None:
        """Campaign at once if the leader of this term asks for it."""
        state = self._state
        if message.term != state.term or sender != state.leader or state.role is not Role.FOLLOWER:
            return
        self._elections.take_over()
