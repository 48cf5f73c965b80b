"""Changes of config on the leader: those that are asked for, and its own: promotion, and removal of a silent newcomer.

A witness keeps the log and has no rows (seed "Raft config change", appendix). It is added as a ``PRE_WITNESS``. The
leader makes it a ``WITNESS`` once its log has caught up, and a ``VOTER`` once it says that it has all rows. The same
holds for every replica without rows, whatever it was added as: it never becomes a ``VOTER``.

At most one change is pending. The leader appends a change only while it serves, that is, once an entry of its own term
is committed; otherwise two majorities that do not overlap could each commit a config (Raft thesis, 4.1, as corrected).
The change of its own membership is the exception to "append": the leader hands over first (seed "Raft config change",
*Process for removing a node*), and its successor can then be asked for the change."""

from __future__ import annotations

from stelae.spi.consensus import ConfigChanged
from stelae.spi.consensus_events import AbortChange, ChangeMembers
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import (
    PROMOTED,
    ChangeRole,
    Member,
    MemberChange,
    MemberType,
    RemoveServer,
    TabletConfig,
    encode_config,
    former_voters,
)
from stelae.spi.rejections import RejectReason
from stelae_consensus_raft.config_change_rules import (
    Refusal,
    changed_members,
    gets_vote,
    leaderless,
    rows_at_risk,
    without_live_majority,
)
from stelae_consensus_raft.leader_state import LeaderState, PendingChange
from stelae_consensus_raft.leadership_transfer import RaftTransfers
from stelae_consensus_raft.progress import PeerState, Progress
from stelae_consensus_raft.raft_state import RaftState


class RaftMembership:
    """What a leader does about its config. A replica that does not lead refuses all requests."""

    __slots__ = ("_join_timeout_us", "_state", "_transfers")

    def __init__(self, state: RaftState, transfers: RaftTransfers) -> None:
        self._state = state
        self._transfers = transfers
        self._join_timeout_us = state.settings.member_join_timeout_ms * 1000

    # -- requests --------------------------------------------------------------------------------

    def change(self, event: ChangeMembers) -> None:
        """Append the change, or reject it with the reason."""
        state, leadership = self._state, self._state.leadership
        if leadership is None:
            state.reject(event.token, RejectReason.NOT_LEADER)
        elif not state.serving:
            state.reject(event.token, RejectReason.CONFIGURING)
        elif leadership.handover is not None:
            state.reject(event.token, RejectReason.TRANSFERRING)
        else:
            members = self._decide(leadership, event)
            if isinstance(members, Refusal):
                state.reject(event.token, members.reason, members.detail)
            elif members is not None:
                self._append(leadership, members, event.token)

    def _decide(self, leadership: LeaderState, event: ChangeMembers) -> tuple[Member, ...] | Refusal | None:
        """Return the members after the change, or why it is refused, or ``None`` if leadership is handed over first.

        Whether there is anything to change comes first, so that a repeated request is answered as done."""
        state, change = self._state, event.change
        members = changed_members(state.config, change)
        if isinstance(members, Refusal):
            return members
        refusal = (
            self._wrong_config_id(event.committed_config_id)
            or self._change_pending()
            or leaderless(state.config, members)
            or without_live_majority(members, state.live_nodes(leadership).__contains__)
            or self._not_caught_up(leadership, members)
            or self._without_rows(leadership, change)
            or self._rows_at_risk(leadership, members)
        )
        if refusal is not None:
            return refusal
        if self._ends_leadership(change):
            self._transfers.begin_for_change(event.token)
            return None
        return members

    def _wrong_config_id(self, expected: OpId | None) -> Refusal | None:
        committed = self._state.configs.committed
        if expected is None or expected == committed.op_id:
            return None
        fact = f"the committed config is {committed.op_id}, the change is meant for {expected}"
        return Refusal(RejectReason.WRONG_CONFIG_ID, f"{fact}; look at the config again, then decide")

    def _change_pending(self) -> Refusal | None:
        config, committed = self._state.config, self._state.configs.committed
        if config.op_id == committed.op_id:
            return None
        fact = f"config {config.op_id} is appended and not committed; the committed one is {committed.op_id}"
        return Refusal(RejectReason.CHANGE_PENDING, f"{fact}; ask again when it is committed")

    def _not_caught_up(self, leadership: LeaderState, members: tuple[Member, ...]) -> Refusal | None:
        state = self._state
        node = gets_vote(state.config, members)
        peer = leadership.peers.get(node) if node is not None else None
        if peer is None or self._is_caught_up(peer):
            return None
        fact = f"node {peer.node_id} would get a vote, but its log ends at {peer.match} of {state.log.last_index}"
        return Refusal(RejectReason.NOT_CAUGHT_UP, f"{fact}; a PRE_VOTER is promoted by itself once it has caught up")

    def _without_rows(self, leadership: LeaderState, change: MemberChange) -> Refusal | None:
        """Refuse to make a VOTER of a member that has no rows, or that has not said yet whether it has them."""
        if not isinstance(change, ChangeRole) or change.member_type is not MemberType.VOTER:
            return None
        peer = leadership.peers.get(change.node_id)
        if peer is None or peer.log_only is False:
            return None
        fact = f"node {peer.node_id} would become a VOTER, but it has the log only, and not all rows"
        return Refusal(RejectReason.ROWS_MISSING, f"{fact}; a WITNESS is promoted by itself once it has copied them")

    def _rows_at_risk(self, leadership: LeaderState, members: tuple[Member, ...]) -> Refusal | None:
        """Refuse members of which too few with rows reach the logs of the witnesses.

        The log of a WITNESS begins before the config in force, because that was appended later. The log of one that
        becomes a WITNESS begins at an entry that is committed, and that it has."""
        state = self._state
        reached = state.config.op_id.index
        node = gets_vote(state.config, members)
        if node is not None and (peer := leadership.peers.get(node)) is not None:
            reached = max(reached, min(peer.match, state.commit))

        def has_reached(node: NodeId) -> bool:
            if (known := leadership.peers.get(node)) is None:
                return node == state.node_id
            # One in COPY may have lost what it has acknowledged: it has no replica, or damaged rows.
            return known.match >= reached and known.state is not PeerState.COPY

        def is_silent(node: NodeId) -> bool:
            known = leadership.peers.get(node)
            return known is not None and state.now_us - known.heard_at_us >= state.timeout_us * 3 // 2

        return rows_at_risk(state.config, members, has_reached, is_silent)

    def _ends_leadership(self, change: MemberChange) -> bool:
        """Return true if this replica could not lead after the change."""
        if change.node_id != self._state.node_id:
            return False
        return isinstance(change, RemoveServer) or (
            isinstance(change, ChangeRole) and change.member_type is not MemberType.VOTER
        )

    def abort(self, event: AbortChange) -> None:
        """Cancel a change that waits for a handover, or say why there is nothing to cancel."""
        state, leadership = self._state, self._state.leadership
        if leadership is None:
            state.reject(event.token, RejectReason.NOT_LEADER)
        elif self._transfers.abort_change():
            state.ready.aborted.append(event.token)
        elif why := self._why_not_abort(leadership):
            state.reject(event.token, RejectReason.CANNOT_ABORT, why)
        else:
            state.reject(event.token, RejectReason.NO_CHANGE, "no change of config is in progress; nothing to abort")

    def _why_not_abort(self, leadership: LeaderState) -> str:
        """Return why the change in progress cannot be cancelled, or an empty text if there is none."""
        pending = self._change_pending()
        if pending is not None:
            index = self._state.config.op_id.index
            return (
                f"the change is appended at index {index}, and a leader never truncates its own log; "
                "it is committed as soon as a majority has it, and can be undone by another change then"
            )
        if leadership.handover is not None and leadership.handover.for_change:
            return "the successor was asked to take over already; ask again when the transfer has ended"
        return ""

    # -- appending and committing ----------------------------------------------------------------

    def _append(self, leadership: LeaderState, members: tuple[Member, ...], token: int | None) -> None:
        state = self._state
        op_id = OpId(state.term, state.log.last_index + 1)
        former = former_voters(state.config, members)
        body = encode_config(TabletConfig(op_id=ZERO, members=members, former_voters=former))
        leadership.pending_change = PendingChange(token, op_id.index)
        state.append([Entry(op_id, EntryKind.CONFIG, 0, body)])

    def flush(self) -> None:
        """Answer a change that is committed, and append a change of the leader's own, if one is due.

        Called once in a turn, after entries were committed."""
        state, leadership = self._state, self._state.leadership
        if leadership is None:
            return
        pending = leadership.pending_change
        if pending is not None:
            if pending.index > state.commit:
                return
            leadership.pending_change = None
            if pending.token is not None:
                state.ready.config_changes.append(ConfigChanged(pending.token, state.configs.committed))
        if not state.may_campaign:
            # Only a leader that was elected before the commit of its own removal gets here.
            self._transfers.resign()
        elif leadership.handover is not None or state.config.op_id != state.configs.committed.op_id:
            return
        elif state.is_caretaker:
            self._promote_as_caretaker(leadership)
        elif (leadership.learners or leadership.witnesses) and state.serving:
            self._promote_or_remove(leadership)

    def _promote_as_caretaker(self, leadership: LeaderState) -> None:
        """Make a VOTER of this replica, or of another witness, if it has rows. No other leader may be possible.

        Who votes stays the same. As for every change, an entry of this term is committed before."""
        state = self._state
        if state.log.term_at(state.commit) != state.term:
            return
        own = () if state.log_only else (state.node_id,)
        others = (p.node_id for p in leadership.witnesses if self._promoted(p, MemberType.WITNESS) is not None)
        for node in (*own, *others):
            members = changed_members(state.config, ChangeRole(node_id=node, member_type=MemberType.VOTER))
            assert not isinstance(members, Refusal)
            if without_live_majority(members, state.live_nodes(leadership).__contains__) is None:
                self._append(leadership, members, None)
                return

    def _promote_or_remove(self, leadership: LeaderState) -> None:
        state = self._state
        for peer in (*leadership.learners, *leadership.witnesses):
            members = self._own_change(peer)
            if members is None:
                continue
            refusal = without_live_majority(members, state.live_nodes(leadership).__contains__)
            if refusal is None and self._rows_at_risk(leadership, members) is None:
                self._append(leadership, members, None)
                return
            leadership.own_change_from_us = state.now_us + state.timeout_us

    def _own_change(self, peer: Progress) -> tuple[Member, ...] | None:
        """Return the members after the leader's own change about a member, or ``None``."""
        state = self._state
        member = state.config.member(peer.node_id)
        assert member is not None
        if (better := self._promoted(peer, member.member_type)) is not None:
            change: MemberChange = ChangeRole(node_id=peer.node_id, member_type=better)
        elif (until := self._joins_until_us(peer)) is not None and state.now_us >= until:
            change = RemoveServer(node_id=peer.node_id)
        else:
            return None
        members = changed_members(state.config, change)
        assert not isinstance(members, Refusal)
        return members

    def _promoted(self, peer: Progress, now: MemberType) -> MemberType | None:
        """Return what to make of a member now, or ``None`` to leave it as it is."""
        if now is MemberType.WITNESS:
            heard = self._state.now_us - peer.heard_at_us < self._state.timeout_us
            return MemberType.VOTER if heard and peer.log_only is False else None
        better = PROMOTED.get(now)
        if better is None or (better is MemberType.VOTER and peer.log_only) or not self._is_caught_up(peer):
            return None
        return better

    def _is_caught_up(self, peer: Progress) -> bool:
        """Return true if a member without a vote could vote now and commits would not wait for it."""
        state = self._state
        if peer.state is not PeerState.REPLICATE or state.now_us - peer.heard_at_us >= state.timeout_us:
            return False
        return peer.catch_up is not None and peer.catch_up.is_caught_up(peer.match, state.now_us, state.timeout_us)

    # -- time ------------------------------------------------------------------------------------

    def _joins_until_us(self, peer: Progress) -> int | None:
        """Return until when a member must answer so as not to be removed, or ``None`` if it stays though it is silent.

        One that is to be promoted is about to join. Until it has its vote, it must answer again and again, under every
        leader: a copy to it takes long, but its node answers meanwhile. Another one must answer once to the leader that
        has added it. After that it may be down for long on purpose."""
        must_answer = peer.joining or (peer.session and not peer.answered)
        return peer.answered_at_us + self._join_timeout_us if must_answer else None

    def deadline_us(self, leadership: LeaderState) -> int | None:
        """Return when a silent newcomer is removed, or ``None``. While another change is in progress nothing is due."""
        state = self._state
        if not leadership.learners or not state.serving or leadership.handover is not None:
            return None
        if state.config.op_id != state.configs.committed.op_id:
            return None
        due = (self._joins_until_us(peer) for peer in leadership.learners)
        return min((max(at, leadership.own_change_from_us) for at in due if at is not None), default=None)
