"""The state that all parts of a core share, and the few operations that change several of them.

Term and vote change only through ``set_term`` and ``vote_for``, roles only through ``move``, the log only through
``append`` and ``truncate``, the commit index only through ``commit_to``. So each rule about them stands in one place.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence

import msgspec

from stelae.spi.consensus import Beats, HardState, LogView, MemberType, Rejection, RejectReason, Role, TabletConfig
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae_consensus_raft.config import Config
from stelae_consensus_raft.configs import ConfigHistory
from stelae_consensus_raft.log_terms import TermLog
from stelae_consensus_raft.outbox import Outbox
from stelae_consensus_raft.progress import Progress
from stelae_consensus_raft.reads import ReadQueue
from stelae_consensus_raft.sizes import SizeLog
from stelae_consensus_raft.sound import config_of
from stelae_consensus_raft.transitions import TRANSITIONS, Cause
from stelae_consensus_raft.voting import Tally
from stelae_consensus_raft.watermark import Watermark

HISTORY_LENGTH_MAX = 64
"""Transitions that are remembered for ``Fatal``."""


class BrokenInvariant(Exception):
    """Raised inside the core only, to leave the current event; ``step`` makes ``Fatal`` of it."""


class Handover(msgspec.Struct):
    """A transfer under way. ``told``: the successor had all of the log and was asked to campaign."""

    token: int
    to: NodeId
    deadline_us: int
    told: bool = False


class Leadership:
    """What exists only while this replica leads, and goes with it."""

    __slots__ = ("handover", "peers", "reads", "reads_sent_at_us", "voting")

    def __init__(self) -> None:
        self.peers: dict[NodeId, Progress] = {}
        self.voting: list[Progress] = []
        """The peers among ``peers`` whose word counts towards a majority."""
        self.reads = ReadQueue()
        self.reads_sent_at_us = 0
        self.handover: Handover | None = None


class Replica:
    """Shared state of one core. ``now_us`` is the time of the last ``Tick``."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        hard_state: HardState,
        log: LogView,
        commit: int,
        applied: int,
        committed_config: TabletConfig,
        settings: Config,
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
        self.log = TermLog(log.base, log.last, log.term_runs)
        self.sizes = SizeLog(log.last.index, settings.entry_bytes_estimate)
        self.durable = Watermark(log.last.index)
        self.configs = ConfigHistory(committed_config, log.configs)
        self.outbox = Outbox(log.last.index)
        self.commit = max(commit, log.base.index)
        self.applied = applied
        self.all_replicated = 0  # Of this start: every member is known to hold the log durably up to here.
        self._forget()
        if self.configs.commit(self.commit):
            self.outbox.committed_config = self.configs.committed
        self._take_members()
        self.role = self._resting_role()

    def _forget(self) -> None:
        """What a start begins without: everything that was not durable."""
        self.serving = False
        self.leader: NodeId | None = None
        self.leader_heard_at_us: int | None = None
        self.leadership: Leadership | None = None
        self.campaign: Tally | None = None
        self.election_deadline_us: int | None = None
        self.saving_since_us: int | None = None  # Since then term and vote are not durable: those of this Ready:
        self.saving_ready = 0
        self.patience = 1  # Campaigns are repeated so many times later than usual, until a leader is heard.
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
        """True if this replica may lead: a voter that also serves (a witness only votes)."""
        return self._may_campaign

    def _take_members(self) -> None:
        config = self.configs.current
        self.voters = config.voters()
        self.is_voter = self.node_id in self.voters
        self.majority = len(self.voters) // 2 + 1
        self.peer_ids = tuple(m.node_id for m in config.members if m.node_id != self.node_id)
        me = config.member(self.node_id)
        self._may_campaign = me is not None and me.member_type is MemberType.VOTER

    def _resting_role(self) -> Role:
        if self.is_voter:
            return Role.FOLLOWER
        if self.config.member(self.node_id) is not None:
            return Role.LEARNER
        return Role.NON_PARTICIPANT

    def take_config(self) -> None:
        """Another config is in force: take its members, and the role that it gives this replica."""
        self._take_members()
        resting = self._resting_role()
        if resting is Role.FOLLOWER:
            self.move(Cause.MADE_VOTER)
        else:
            self.move(Cause.MADE_LEARNER if resting is Role.LEARNER else Cause.REMOVED)
        if self.role is not Role.LEADER:
            self.rest()

    # -- role, term, vote ------------------------------------------------------------------------

    def move(self, cause: Cause) -> bool:
        """Change the role as the table says; false where it says that the cause is ignored."""
        before = self.role
        after = TRANSITIONS[cause][before]
        self.transitions[before, cause] += 1
        if after is None:
            return False
        self._note(f"{before} -> {after} ({cause})")
        self.role = after
        if after is not Role.CANDIDATE:
            self.campaign = None
        if before is Role.LEADER and after is not Role.LEADER:
            self._drop_leadership(cause)
        return True

    def _note(self, what: str) -> None:
        self.history.append(
            f"{self.now_us} us: {what}, term {self.term}, last {self.log.last}, "
            f"commit {self.commit}, leader {self.leader}"
        )

    def _drop_leadership(self, cause: Cause) -> None:
        lost = self.leadership
        assert lost is not None
        self.leadership = None
        self.leader = None
        self.outbox.ranges.clear()
        self.outbox.beats = Beats(self.term, ())
        for token in lost.reads.drain():
            self.reject(token, RejectReason.LEADERSHIP_LOST)
        if lost.handover is not None:
            # A later term after the successor was told: it campaigns, and we have voted for it or will.
            if lost.handover.told and cause is Cause.HIGHER_TERM:
                self.outbox.handed_over.append(lost.handover.token)
            else:
                self.reject(lost.handover.token, RejectReason.LEADERSHIP_LOST)

    def set_term(self, term: int, voted_for: NodeId | None) -> None:
        """Enter a later term, with or without a vote of our own in it."""
        if term <= self.term:
            raise BrokenInvariant(f"term would go from {self.term} to {term}")
        self.outbox.drop_replies()
        self.term = term
        self.leader = None
        self.serving = False
        self.voted_for = voted_for
        self.persist_hard_state()

    def vote_for(self, candidate: NodeId) -> None:
        """Give this term's vote; giving it again to the same candidate changes nothing."""
        if self.voted_for == candidate:
            return
        if self.voted_for is not None:
            raise BrokenInvariant(f"vote of term {self.term} would go from {self.voted_for} to {candidate}")
        self.voted_for = candidate
        self._note(f"vote for {candidate}")
        self.persist_hard_state()

    def persist_hard_state(self) -> None:
        """Make term and vote durable with this Ready, before anything that depends on them."""
        self.outbox.hard_state = HardState(self.term, self.voted_for)
        self.saving_ready = self.outbox.next_id
        if self.saving_since_us is None:
            self.saving_since_us = self.now_us

    def step_down(self, cause: Cause, term: int = 0) -> None:
        """Become a follower (or stay a learner), in a later term if ``term`` is one.

        A follower's election deadline stands: a candidate that cannot win must not keep those that can from trying."""
        led = self.role is Role.LEADER
        if term > self.term:
            self.set_term(term, None)
        self.move(cause)
        if led:
            self.rest()

    def leader_is_alive(self) -> bool:
        """True if this replica leads, or heard from a leader within one election timeout."""
        if self.role is Role.LEADER:
            return True
        heard = self.leader_heard_at_us
        return heard is not None and self.now_us - heard < self.timeout_us

    def draw_timeout_us(self, low: float = 1.0, high: float = 2.0) -> int:
        """Draw a time between ``low`` and ``high`` election timeouts."""
        return int((low + (high - low) * self.rng.random()) * self.timeout_us)

    def rest(self) -> None:
        """Set the time after which this replica campaigns if it hears from no leader."""
        at = self.now_us + self.draw_timeout_us()
        self.election_deadline_us = at if self._may_campaign else None

    # -- log and commit --------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries after the last one; a config among them takes effect here."""
        log, sizes = self.log, self.sizes
        config_changed = False
        for entry in entries:
            log.append(entry.op_id.term)
            sizes.append(entry.size_bytes)
            if entry.kind is EntryKind.CONFIG:
                config = config_of(entry)
                config_changed |= config is not None and self.configs.append(config)
        self.outbox.append(entries)
        self.durable.appended(self.outbox.next_id, log.last_index)
        if config_changed:
            self.take_config()

    def truncate(self, index: int) -> None:
        """Void everything at or above ``index``. A committed entry is never voided."""
        if index <= self.commit:
            raise BrokenInvariant(f"would truncate at {index}, commit index is {self.commit}")
        if self.role is Role.LEADER:
            raise BrokenInvariant(f"a leader would truncate its own log at {index}")
        self.log.cut(index)
        self.sizes.cut(index)
        self.outbox.truncate(index)
        self.durable.truncated(self.outbox.next_id, index)
        if self.configs.cut(index):
            self.take_config()

    def log_failed(self, durable_index: int) -> None:
        """The log on disk ends at ``durable_index``: so does ours, whatever we were about to do."""
        replaced = self.outbox.replaces_from()
        end = min(durable_index, self.log.last_index)
        if replaced is not None:
            end = min(end, replaced - 1)
        if end < self.log.base.index:
            raise BrokenInvariant(f"log failed at {end}, below its base {self.log.base}")
        self.log.cut(end + 1)
        self.sizes.cut(end + 1)
        self.outbox.drop_replies()
        self.outbox.log_failed(end)
        self.durable.failed(self.outbox.next_id, end)
        self.refresh_serving()
        if self.configs.cut(end + 1):
            self.take_config()

    def commit_to(self, index: int) -> bool:
        """Advance the commit index; false if it is there already."""
        if index <= self.commit:
            return False
        if index > self.log.last_index:
            raise BrokenInvariant(f"would commit {index}, the log ends at {self.log.last}")
        self.commit = self.outbox.commit = index
        if not self.serving:
            self.refresh_serving()
        if self.configs.commit(index):
            self.outbox.committed_config = self.configs.committed
        return True

    def replicated_on_all(self, index: int) -> None:
        """Every member holds the log durably up to ``index``, of which only what is committed here counts.

        It never goes back, whoever leads: a committed entry that is durable on every member stays so."""
        self.all_replicated = max(self.all_replicated, min(index, self.commit))

    def collected(self, base: OpId) -> None:
        """The log on disk begins after ``base``."""
        if base.index > self.log.base.index and not self.log.holds(base):
            raise BrokenInvariant(f"collected up to {base}, which is not in the log up to {self.log.last}")
        self.log.collect(base)

    def refresh_serving(self) -> None:
        """A replica serves once it knows that an entry of its current term is committed."""
        self.serving = self.term > 0 and self.log.term_at(self.commit) == self.term

    # -- talking ---------------------------------------------------------------------------------

    def send(self, to: NodeId, message: msgspec.Struct) -> None:
        """Send what depends on term and vote only."""
        self.outbox.send(to, message, self.term)

    def send_durable(self, to: NodeId, message: msgspec.Struct) -> None:
        """Send what depends on the log of this Ready being durable."""
        self.outbox.send_durable(to, message, self.term)

    def reject(self, token: int, reason: RejectReason) -> None:
        """Refuse a proposal or a read."""
        self.outbox.rejections.append(Rejection(token, reason, self.leader))

    def refuse_peer(self, why: str) -> None:
        """Count a message that no honest peer sends, and forget it."""
        self.refused[why] += 1

    @property
    def never_configured(self) -> bool:
        """True where no config was ever agreed: an empty log and an initial config only."""
        return self.log.last == ZERO and self.config.op_id == ZERO
