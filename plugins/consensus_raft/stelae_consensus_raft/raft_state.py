"""The Raft state of one replica, which all parts of its core share, and the operations that change it.

Term and vote change only in ``set_term`` and ``vote_for``, the role only in ``change_role``, the log only in
``append``, ``truncate``, ``log_failed`` and ``collect_to``, the commit index only in ``commit_to``. So each rule about
a change is checked in one place.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from stelae.spi.consensus import Beats, HardState, LogView, Role
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import PROMOTED, VOTING, MemberType, TabletConfig
from stelae.spi.recovery_epoch import recovery_epoch, stands_down
from stelae.spi.rejections import Rejection, RejectReason
from stelae_consensus_raft.catch_up import CatchUp
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.config_history import ConfigHistory
from stelae_consensus_raft.durable_index import DurableIndex
from stelae_consensus_raft.entry_sizes import EntrySizes
from stelae_consensus_raft.leader_state import Handover, LeaderState
from stelae_consensus_raft.log_terms import LogTerms
from stelae_consensus_raft.message_checks import config_of_entry
from stelae_consensus_raft.progress import PeerState, Progress
from stelae_consensus_raft.quorum import majority_of
from stelae_consensus_raft.read_lease import lease_length_us
from stelae_consensus_raft.ready_builder import ReadyBuilder
from stelae_consensus_raft.transitions import TRANSITIONS, Cause
from stelae_consensus_raft.vote_rules import VoteTally

HISTORY_LENGTH_MAX = 64
"""Number of role changes and votes that are remembered for ``Fatal``."""

VOTER_WAIT = (1.0, 2.0)
"""Bounds, in election timeouts, of the time without a leader after which a voter campaigns."""

CARETAKER_EXTRA = 1
"""How many election timeouts longer each wait is on a replica that would be a caretaker, so that voters campaign first,
also after a campaign that failed."""


class BrokenInvariant(Exception):
    """A broken invariant. It is raised inside the core only; ``step`` turns it into ``Fatal``."""


class RaftState:
    """The state of one core. ``now_us`` is the time of the last ``Tick``."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        hard_state: HardState,
        log: LogView,
        commit: int,
        applied: int,
        committed_config: TabletConfig,
        settings: RaftConfig,
        rng: random.Random,
        now_us: int,
    ) -> None:
        self.node_id = node_id
        self.settings = settings
        self.timeout_us = settings.election_timeout_ms * 1000
        self.now_us = now_us
        self.rng = rng
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        self._init_promises(hard_state.promised_us)
        self._init_log(log, commit, applied, committed_config)
        self._init_volatile()
        if self.configs.commit(self.commit):
            self.ready.committed_config = self.configs.committed
        self._load_members()
        self.role = self._role_in_config()
        if self.lease_length_us and self.term and not self.promises_durable:
            self.persist_hard_state()

    def _init_log(self, log: LogView, commit: int, applied: int, committed_config: TabletConfig) -> None:
        self.log = LogTerms(log.base, log.last, log.term_runs)
        #: True if this replica has no rows: it is, or is to become, a witness.
        self.log_only = log.log_only
        #: An earlier replica of this node had entries up to here. Its acknowledgements count for votes.
        self.vote_floor = log.vote_floor
        self.sizes = EntrySizes(log.last.index, self.settings.entry_bytes_estimate)
        self.durable = DurableIndex(log.last.index)
        self.configs = ConfigHistory(committed_config, log.configs)
        self.ready = ReadyBuilder(log.last.index)
        self.commit = max(commit, log.base.index)
        self.applied = applied
        #: Up to this index every member is known to hold the log durably. It is not stored: a start knows nothing.
        self.all_replicated = 0
        #: True if this replica would lead as a caretaker only.
        self.is_caretaker = self.log_only

    def _init_promises(self, promised_us: int) -> None:
        """Withhold the vote for as long as this replica may have promised before its start (rule 13).

        The election timeout may have been another one then. So the promise counts, not the present timeout."""
        self.lease_length_us = lease_length_us(self.timeout_us, self.settings.clock_drift_ppm_max)
        self._promised_before_us = promised_us
        self.withhold_until_us = self.now_us + promised_us
        #: True if a start after a crash would find that this replica may have promised one timeout.
        self.promises_durable = promised_us >= self.timeout_us
        #: True while the driver holds the time back: what was heard then was heard later than ``now_us`` says.
        self.time_held_back = False

    def _init_volatile(self) -> None:
        """Set the state that is not durable, as a start finds it."""
        self.serving = False
        self.leader: NodeId | None = None
        self.leader_heard_at_us: int | None = None
        self.leadership: LeaderState | None = None
        self.campaign: VoteTally | None = None
        self.election_deadline_us: int | None = None
        #: Since when term and vote wait to become durable; ``None`` if they are durable.
        self.hard_state_pending_since_us: int | None = None
        #: The Ready with the newest term and vote.
        self.hard_state_ready_id = 0
        #: Factor of the waits between campaigns. It grows on an overloaded machine, and is 1 again with a leader.
        self.backoff_factor = 1
        #: The op id of a committed config that does not list this replica, as a member said.
        self.removed_by = ZERO
        #: True if a recovery left this replica behind (durability rule 29).
        self.stands_down = False
        self.refused: Counter[str] = Counter()
        self.transitions: Counter[tuple[Role, Cause]] = Counter()
        self.history: deque[str] = deque(maxlen=HISTORY_LENGTH_MAX)
        self.fatal = False
        self.role = Role.NON_PARTICIPANT

    # -- members ---------------------------------------------------------------------------------

    @property
    def config(self) -> TabletConfig:
        """The config in force."""
        return self.configs.current

    @property
    def may_campaign(self) -> bool:
        """True if this replica may lead: it has a vote. A witness leads as a caretaker only.

        A voter that a config removes or demotes may lead until that config is committed. Its vote may be needed until
        then, and if its log is longer than those of the others, only it can be elected (Raft thesis, 4.2.2)."""
        return self._may_campaign

    def _load_members(self) -> None:
        config, committed = self.configs.current, self.configs.committed
        self.voters = config.voters()
        self.is_voter = self.node_id in self.voters
        self.majority = majority_of(len(self.voters))
        self.peer_ids = tuple(m.node_id for m in config.members if m.node_id != self.node_id)
        members = (config.member(self.node_id), committed.member(self.node_id))
        electable = any(member is not None and member.member_type in VOTING for member in members)
        self.stands_down = stands_down(self.term, self.log.last.term)
        self._may_campaign = electable and self.removed_by <= config.op_id and not self.stands_down
        own = config.member(self.node_id)
        self.is_caretaker = self.log_only or (own is not None and own.member_type is MemberType.WITNESS)

    def _role_in_config(self) -> Role:
        if self.removed_by > self.config.op_id or self.stands_down:
            return Role.NON_PARTICIPANT
        if self.is_voter or self._may_campaign:
            return Role.FOLLOWER
        if self.config.member(self.node_id) is not None:
            return Role.LEARNER
        return Role.NON_PARTICIPANT

    def apply_config(self) -> None:
        """Apply the config in force: its members, and the role that it gives this replica.

        A leader leads on. If its removal is committed, ``RaftMembership`` ends its leadership."""
        self._load_members()
        if self.leadership is not None:
            self.load_peers(self.leadership)
            self.refresh_serving()
        else:
            self.take_role_in_config()

    def _config_committed(self) -> None:
        """A voter that the committed config removed or demoted may not lead any more."""
        might_campaign = self._may_campaign
        self._load_members()
        if self.leadership is None and self._may_campaign != might_campaign:
            self.take_role_in_config()

    def take_role_in_config(self) -> None:
        """Take the role that the config in force gives this replica."""
        role = self._role_in_config()
        if role is Role.FOLLOWER:
            self.change_role(Cause.MADE_VOTER)
        else:
            self.change_role(Cause.MADE_LEARNER if role is Role.LEARNER else Cause.REMOVED)
        if self.role is not Role.LEADER:
            self.reset_election_deadline()

    def load_peers(self, leadership: LeaderState) -> None:
        """Make the peers of a leader those of the config in force. What was known of a removed peer is forgotten."""
        known, next_index = leadership.peers, self.log.last_index + 1
        session = self.config.op_id.index if self.config.op_id.index > leadership.first_index else 0
        leadership.peers = {n: known.get(n) or Progress(n, next_index, self.now_us, session) for n in self.peer_ids}
        leadership.voting, leadership.learners = [], []
        types = {member.node_id: member.member_type for member in self.config.members}
        for node, peer in leadership.peers.items():
            votes = node in self.voters
            (leadership.voting if votes else leadership.learners).append(peer)
            peer.catch_up = None if votes else peer.catch_up or CatchUp()
            peer.set_joining(types[node] in PROMOTED, self.now_us)
        leadership.witnesses = [peer for peer in leadership.voting if types[peer.node_id] is MemberType.WITNESS]
        leadership.majority_changed = True
        self.ready.beats = Beats(self.term, self.peer_ids)
        leadership.lease.config_changed(leadership.reads.round)

    def live_nodes(self, leadership: LeaderState) -> set[NodeId]:
        """Return the nodes that were heard within one and a half election timeouts, this replica included.

        A peer that has not answered this leader yet is not live: it may have been dead since before the election. A
        peer that needs a copy answers heartbeats, but acknowledges no entry until it has been copied."""
        since = self.now_us - self.timeout_us * 3 // 2
        peers = [peer for peer in leadership.peers.values() if peer.state is not PeerState.COPY]
        return {self.node_id, *(peer.node_id for peer in peers if peer.followed_since(since))}

    def removed(self, by: OpId) -> None:
        """Note that the committed config ``by`` does not list this replica, which has only older configs."""
        self.removed_by = by
        self._load_members()
        self.take_role_in_config()

    # -- role, term, vote ------------------------------------------------------------------------

    def change_role(self, cause: Cause) -> bool:
        """Change the role as the table in ``transitions`` says. Returns false if the table ignores the cause."""
        before = self.role
        after = TRANSITIONS[cause][before]
        self.transitions[before, cause] += 1
        if after is None:
            return False
        self._record(f"{before} -> {after} ({cause})")
        self.role = after
        if after is not Role.CANDIDATE:
            self.campaign = None
        if before is Role.LEADER and after is not Role.LEADER:
            self._drop_leadership(cause)
        return True

    def _record(self, what: str) -> None:
        self.history.append(
            f"{self.now_us} us: {what}, term {self.term}, last {self.log.last}, "
            f"commit {self.commit}, leader {self.leader}"
        )

    def _drop_leadership(self, cause: Cause) -> None:
        lost = self.leadership
        assert lost is not None
        self.leadership = None
        self.leader = None
        self.ready.ranges.clear()
        self.ready.beats = Beats(self.term, ())
        for token in lost.reads.drain():
            self.reject(token, RejectReason.LEADERSHIP_LOST)
        if lost.pending_change is not None and lost.pending_change.token is not None:
            self.reject(lost.pending_change.token, RejectReason.LEADERSHIP_LOST)
        if lost.handover is not None and lost.handover.token is not None:
            self._end_handover(lost.handover, lost.handover.token, cause)
        self.refresh_serving()

    def _end_handover(self, handover: Handover, token: int, cause: Cause) -> None:
        # The successor was asked to campaign, and now there is a later term: this is its campaign.
        succeeded = handover.timeout_now_sent and cause is Cause.HIGHER_TERM
        if not succeeded:
            self.reject(token, RejectReason.LEADERSHIP_LOST)
        elif handover.for_change:
            detail = f"this leader has handed over to node {handover.to}; send the change to that node"
            self.ready.rejections.append(Rejection(token, RejectReason.STEPPING_DOWN, handover.to, detail))
        else:
            self.ready.handed_over.append(token)

    def set_term(self, term: int, voted_for: NodeId | None) -> None:
        """Enter a later term. ``voted_for`` is this replica's vote in it, or ``None`` if it has not voted yet."""
        if term <= self.term:
            raise BrokenInvariant(f"the term would change from {self.term} to {term}")
        self.ready.drop_messages()
        self.term = term
        self.leader = None
        self.serving = False
        self.voted_for = voted_for
        self.persist_hard_state()

    def vote_for(self, candidate: NodeId) -> None:
        """Give this term's vote. Giving it to the same candidate again changes nothing."""
        if self.voted_for == candidate:
            return
        if self.voted_for is not None:
            raise BrokenInvariant(f"the vote of term {self.term} would change from {self.voted_for} to {candidate}")
        self.voted_for = candidate
        self._record(f"vote for {candidate}")
        self.persist_hard_state()

    def persist_hard_state(self) -> None:
        """Write term and vote with this Ready, before everything that depends on them."""
        promised_us = self.timeout_us if self.lease_length_us else 0
        if self.now_us < self.withhold_until_us:
            promised_us = max(promised_us, self._promised_before_us)
        self.ready.hard_state = HardState(self.term, self.voted_for, promised_us)
        self.hard_state_ready_id = self.ready.next_id
        if self.hard_state_pending_since_us is None:
            self.hard_state_pending_since_us = self.now_us

    def hard_state_durable(self) -> None:
        """Note that the newest term and vote are durable."""
        self.hard_state_pending_since_us = None
        self.promises_durable |= self.lease_length_us > 0

    def step_down(self, cause: Cause, term: int = 0) -> None:
        """Become a follower (or stay a learner), in ``term`` if that is a later term.

        The election deadline of a follower does not change. Otherwise a candidate that cannot win would delay the
        campaigns of those that can."""
        led = self.role is Role.LEADER
        epoch = recovery_epoch(self.term)
        if term > self.term:
            self.set_term(term, None)
        self.change_role(cause)
        if recovery_epoch(self.term) > epoch:
            self._load_members()
            self.take_role_in_config()
        if led:
            self.reset_election_deadline()

    def leader_is_alive(self) -> bool:
        """Return true if this replica leads, or heard from a leader within one election timeout.

        For a time after a start it is true, too, if a leader may rely on a promise of before."""
        if self.role is Role.LEADER or self.now_us < self.withhold_until_us:
            return True
        heard = self.leader_heard_at_us
        return heard is not None and self.now_us - heard < self.timeout_us

    def promised_us(self) -> int:
        """Return for how long this replica promises the leader that it hears now to withhold its vote, or 0."""
        promises = self.lease_length_us > 0 and self.promises_durable and self.is_voter and not self.time_held_back
        return self.timeout_us if promises else 0

    def is_bound(self) -> bool:
        """Return true if a leader may rely on a promise of this replica to withhold its vote now."""
        may_have_promised = self.lease_length_us > 0 or self.now_us < self.withhold_until_us
        return may_have_promised and self.leader_is_alive()

    def draw_timeout_us(self, low: float = VOTER_WAIT[0], high: float = VOTER_WAIT[1]) -> int:
        """Return a random wait before a campaign, in microseconds.

        It is between ``low`` and ``high`` election timeouts, and on a caretaker ``CARETAKER_EXTRA`` longer."""
        extra = CARETAKER_EXTRA if self.is_caretaker else 0
        return int((extra + low + (high - low) * self.rng.random()) * self.timeout_us)

    def reset_election_deadline(self) -> None:
        """Draw a new time at which this replica campaigns if it hears from no leader until then.

        It is not before the end of a promise that was made before the start."""
        at = max(self.now_us, self.withhold_until_us - self.timeout_us) + self.draw_timeout_us()
        self.election_deadline_us = at if self._may_campaign else None

    # -- log and commit --------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries after the last one. A config among them takes effect here (durability rule 11)."""
        log, sizes = self.log, self.sizes
        config_changed = False
        for entry in entries:
            log.append(entry.op_id.term)
            sizes.append(entry.size_bytes)
            if entry.kind is EntryKind.CONFIG:
                config = config_of_entry(entry)
                config_changed |= config is not None and self.configs.append(config)
        self.ready.append(entries)
        self.durable.appended(self.ready.next_id, log.last_index)
        if config_changed or self.stands_down:
            self.apply_config()

    def truncate(self, index: int) -> None:
        """Remove everything at or above ``index``. A committed entry is never removed."""
        if index <= self.commit:
            raise BrokenInvariant(f"the log would be truncated at {index}, but the commit index is {self.commit}")
        if self.role is Role.LEADER:
            raise BrokenInvariant(f"the leader would truncate its own log at {index}")
        self.log.cut(index)
        self.sizes.cut(index)
        self.ready.truncate(index)
        self.durable.truncated(self.ready.next_id, index)
        if self.configs.cut(index):
            self.apply_config()

    def log_failed(self, durable_index: int) -> None:
        """Cut the log to ``durable_index``, where the log on disk ends after a failed write."""
        replaced = self.ready.replaces_from()
        end = min(durable_index, self.log.last_index)
        if replaced is not None:
            end = min(end, replaced - 1)
        if end < self.log.base.index:
            raise BrokenInvariant(f"the log failed at {end}, below its base {self.log.base}")
        self.log.cut(end + 1)
        self.sizes.cut(end + 1)
        self.ready.drop_messages()
        self.ready.log_failed(end, durable_index)
        self.durable.failed(self.ready.next_id, end)
        self.refresh_serving()
        if self.configs.cut(end + 1):
            self.apply_config()

    def commit_to(self, index: int) -> bool:
        """Advance the commit index to ``index``. Returns false if it is not below ``index``."""
        if index <= self.commit:
            return False
        if index > self.log.last_index:
            raise BrokenInvariant(f"the commit index would be {index}, but the log ends at {self.log.last}")
        self.commit = self.ready.commit = index
        if not self.serving:
            self.refresh_serving()
        if self.configs.commit(index):
            self.ready.committed_config = self.configs.committed
            self._config_committed()
        return True

    def advance_all_replicated(self, index: int) -> None:
        """Note that every member holds the log durably up to ``index``. Only entries that are committed here count.

        The all-replicated index never goes back, also under another leader: an entry that is committed and durable on
        every member stays so."""
        self.all_replicated = max(self.all_replicated, min(index, self.commit))

    def collect_to(self, base: OpId) -> None:
        """Note that the log on disk begins after ``base`` now."""
        if base.index > self.log.base.index and not self.log.holds(base):
            raise BrokenInvariant(f"the log was collected up to {base}, which is not in it; it ends at {self.log.last}")
        self.log.collect(base)

    def refresh_serving(self) -> None:
        """Serve once an entry of the current term is known to be committed (durability rule 10).

        A caretaker serves no requests (rule 12)."""
        ready = self.term > 0 and self.log.term_at(self.commit) == self.term
        self.serving = ready and not (self.is_caretaker and self.role is Role.LEADER)

    # -- messages --------------------------------------------------------------------------------

    def send(self, to: NodeId, message: msgspec.Struct) -> None:
        """Send a message that depends on term and vote only."""
        self.ready.send(to, message, self.term)

    def send_durable(self, to: NodeId, message: msgspec.Struct) -> None:
        """Send a message once the log of this Ready is durable."""
        self.ready.send_durable(to, message, self.term)

    def reject(self, token: int, reason: RejectReason, detail: str = "") -> None:
        """Reject a proposal, a read, a transfer or a change of config."""
        self.ready.rejections.append(Rejection(token, reason, self.leader, detail))

    def count_refused(self, why: str) -> None:
        """Count a message that no correct peer sends. The message has no effect."""
        self.refused[why] += 1

    @property
    def never_configured(self) -> bool:
        """True if no config was ever committed: the log is empty, and the config is the initial one."""
        return self.log.last == ZERO and self.config.op_id == ZERO
