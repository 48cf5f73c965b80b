"""Unsafe recovery: a survivor of a lost majority becomes the only voter, and the other survivors stand down.

Source: seed "Raft config change", *Restoring availability after catastrophic data loss*; durability rule 29. The seed
rewrites consensus metadata and asks whether that violates Raft. Here the survivor appends a config entry, as for any
other change, in a term of a new recovery epoch. The order of op ids then does the rest: the entry is above all that the
lost members may have, and a replica that has heard of its epoch accepts nothing that is older.

1. Each other survivor enters the term and votes in it for the chosen survivor (``StandDown``). So at most one replica
   can be recovered in an epoch, if two operators choose differently.
2. The chosen one enters the term with a vote for itself, and appends the config entry in it (``RecoverAlone``). Hard
   state and entry are of one Ready: after a crash, term and vote may be durable without the entry. Then it stands down
   like the others, and its own vote shows that the recovery may be repeated.
3. It is the only voter now, and campaigns as usual. Its first entry commits the config and all before it."""

from __future__ import annotations

from stelae.spi.consensus import ConfigChanged, Role
from stelae.spi.consensus_events import RecoverAlone, StandDown
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, MemberType, TabletConfig, encode_config, former_voters
from stelae.spi.recovery_epoch import is_first_term, is_too_far_ahead, recovery_epoch, recovery_id
from stelae.spi.rejections import RejectReason
from stelae_consensus_raft.config_change_rules import Refusal
from stelae_consensus_raft.election import Elections
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.transitions import Cause


class RaftRecovery:
    """Recovers this replica, or lets it stand down for another one."""

    __slots__ = ("_elections", "_pending", "_state")

    def __init__(self, state: RaftState, elections: Elections) -> None:
        self._state = state
        self._elections = elections
        self._pending: tuple[int, OpId] | None = None  # Token and config entry of a recovery that is not committed yet.

    # -- the survivor ----------------------------------------------------------------------------

    def recover_alone(self, event: RecoverAlone) -> None:
        """Become the only voter, or reject the event with the reason."""
        state = self._state
        refusal = self._refusal(event.term, self._state.node_id) or self._not_a_survivor()
        refusal = refusal or self._changed_since(event) or self._lost_its_tail()
        if refusal is not None:
            state.reject(event.token, refusal.reason, refusal.detail)
            return
        self._drop_pending()
        # After a crash the term of the recovery may be durable already, and a campaign may have followed.
        term = max(event.term, state.term + 1)
        state.step_down(Cause.HIGHER_TERM, term)
        state.vote_for(state.node_id)
        op_id = OpId(term, state.log.last_index + 1)
        self._pending = event.token, op_id
        state.append([Entry(op_id, EntryKind.CONFIG, 0, encode_config(self._config_alone()))])
        self._elections.campaign()

    def _config_alone(self) -> TabletConfig:
        config = self._state.config
        own = config.member(self._state.node_id)
        assert own is not None
        voter = MemberType.VOTER
        alone = (Member(node_id=own.node_id, address=own.address, member_type=voter),)
        return TabletConfig(op_id=ZERO, members=alone, former_voters=former_voters(config, alone))

    def _not_a_survivor(self) -> Refusal | None:
        state = self._state
        own = state.config.member(state.node_id)
        if own is None or state.removed_by > state.config.op_id:
            newest = max(state.config.op_id, state.removed_by)
            fact = f"config {newest} does not list this replica: it was removed from the tablet"
            return Refusal(RejectReason.NOT_A_MEMBER, f"{fact}; recover a member")
        if state.is_caretaker or own.member_type is MemberType.PRE_WITNESS:
            return Refusal(RejectReason.ROWS_MISSING, "this replica has the log only (a witness); recover another one")
        return None

    def _changed_since(self, event: RecoverAlone) -> Refusal | None:
        last, config_id = self._state.log.last, self._state.config.op_id
        if (last, config_id) == (event.last, event.config_id):
            return None
        fact = f"the log ends at {last} with config {config_id}"
        asked = f"the recovery is meant for a log that ends at {event.last} with config {event.config_id}"
        return Refusal(RejectReason.CHANGED_SINCE, f"{fact}, and {asked}; make a new plan")

    def _lost_its_tail(self) -> Refusal | None:
        """Return why this replica must restart first: its store may have applied entries that its log has lost.

        That store would never apply the entries that come at their indexes after the recovery."""
        last, commit = self._state.log.last, self._state.commit
        if commit <= last.index:
            return None
        fact = f"the log ends at {last}, because a write failed, and entries up to {commit} are committed"
        return Refusal(RejectReason.CHANGED_SINCE, f"{fact}; restart this node, then make a new plan")

    # -- the other survivors ---------------------------------------------------------------------

    def stand_down(self, event: StandDown) -> None:
        """Enter the term of the recovery with a vote for the survivor, or reject the event with the reason."""
        state = self._state
        if event.survivor == state.node_id:
            detail = "this replica is the survivor itself; ask the others to stand down"
            state.reject(event.token, RejectReason.STOOD_DOWN, detail)
            return
        if self._has_stood_down(event):
            state.ready.stood_down.append(event.token)
            return
        refusal = self._is_the_tablet() or self._refusal(event.term, event.survivor)
        if refusal is not None:
            state.reject(event.token, refusal.reason, refusal.detail)
            return
        self._drop_pending()
        state.step_down(Cause.HIGHER_TERM, event.term)
        state.vote_for(event.survivor)
        state.ready.stood_down.append(event.token)

    def _is_the_tablet(self) -> Refusal | None:
        """Return why an only voter refuses to stand down: another replica may lack its committed entries.

        It may have been recovered after the plan of this request was made. A replica that knows of a later recovery is
        no majority any more, and does not refuse."""
        state = self._state
        if state.config.voters() != (state.node_id,) or state.stands_down:
            return None
        fact = f"this replica is the only voter, by config {state.config.op_id}"
        return Refusal(RejectReason.LEADER_ALIVE, f"{fact}; a tablet with a majority needs no recovery")

    def _has_stood_down(self, event: StandDown) -> bool:
        """Return true if this replica follows the recovery already, or has given it its vote."""
        state = self._state
        if recovery_id(state.term) != recovery_id(event.term):
            return False
        if not state.stands_down:
            return True
        heard_later = state.term > event.term and state.voted_for != state.node_id
        return state.voted_for == event.survivor or heard_later

    # -- both ------------------------------------------------------------------------------------

    def _refusal(self, term: int, survivor: NodeId) -> Refusal | None:
        """Return why this replica cannot take part in a recovery of ``survivor`` in this term."""
        state = self._state
        if not is_first_term(term) or is_too_far_ahead(term, state.term):
            return Refusal(RejectReason.CHANGED_SINCE, f"no recovery begins in term {term}; make a new plan")
        if recovery_id(state.log.last.term) == recovery_id(term):
            return Refusal(RejectReason.RECOVERED, f"the log ends at {state.log.last}, of this recovery; nothing to do")
        # An only voter is its own majority. Its recovery only begins a new epoch, which is above all entries that the
        # tablet may have had before it was created anew (a catalog whose masters were all lost).
        alone = state.config.voters() == (state.node_id,)
        if not alone and (state.role is Role.LEADER or state.leader_is_alive()):
            heard = "this replica heard a leader within one election timeout"
            fact = "this replica leads the tablet" if state.role is Role.LEADER else heard
            return Refusal(RejectReason.LEADER_ALIVE, f"{fact}; a tablet with a majority needs no recovery")
        if recovery_epoch(state.term) < recovery_epoch(term):
            return None
        resumes = recovery_id(state.term) == recovery_id(term) and state.voted_for == survivor
        # A replica that campaigned has heard the term from a survivor that stood down before; its own vote is free.
        only_heard = state.term == term and state.voted_for is None
        if resumes or only_heard:
            return None
        fact = f"this replica is in term {state.term}, recovery epoch {recovery_epoch(state.term)}"
        if state.voted_for is not None and state.stands_down:
            fact += f", and has left the tablet to node {state.voted_for}"
        return Refusal(RejectReason.STOOD_DOWN, f"{fact}; make a new plan, which begins a later epoch")

    def flush(self) -> None:
        """Answer a recovery that is committed, or that will not be. Called once in a turn."""
        if self._pending is None:
            return
        state, (token, op_id) = self._state, self._pending
        if state.log.term_at(op_id.index) != op_id.term:
            self._drop_pending()
        elif state.commit >= op_id.index:
            self._pending = None
            state.ready.config_changes.append(ConfigChanged(token, state.configs.committed))

    def _drop_pending(self) -> None:
        if self._pending is not None:
            self._state.reject(self._pending[0], RejectReason.LEADERSHIP_LOST)
            self._pending = None
