"""The invariants of a replicated tablet, one file each."""

from __future__ import annotations

from stelae.sim.invariants.acknowledged_writes import AcknowledgedWrites
from stelae.sim.invariants.base import AppliedRequest, FactListener, Invariant, ObservedLookup, ObservedScan, Violation
from stelae.sim.invariants.commit_rule import CommitRule
from stelae.sim.invariants.complete_copies import CopiedItemsVerified, CopiedLogKept
from stelae.sim.invariants.config_follows_log import ConfigFollowsLog
from stelae.sim.invariants.copied_replicas import NoNeedlessDeletion, TombstonePromises, TombstonesVote
from stelae.sim.invariants.elected_by_majority import ElectedByMajority
from stelae.sim.invariants.election_restriction import ElectionRestriction
from stelae.sim.invariants.election_safety import ElectionSafety
from stelae.sim.invariants.exactly_once import ExactlyOnce
from stelae.sim.invariants.failed_sync import FailedSync
from stelae.sim.invariants.flush_durability import FlushDurability
from stelae.sim.invariants.hybrid_time import HybridTimeOrder
from stelae.sim.invariants.leader_append_only import LeaderAppendOnly
from stelae.sim.invariants.leader_changes import ChangesAreFenced, NoNeedlessRemoval, VotersHaveCaughtUp
from stelae.sim.invariants.leader_completeness import LeaderCompleteness
from stelae.sim.invariants.lease_exclusive import LeaseExclusive
from stelae.sim.invariants.linearizability import Linearizability
from stelae.sim.invariants.log_base import LogBase
from stelae.sim.invariants.log_durability import LogDurability
from stelae.sim.invariants.log_matching import LogMatching
from stelae.sim.invariants.log_retention import LogRetention
from stelae.sim.invariants.one_change_pending import OneChangePending
from stelae.sim.invariants.persist_before_send import PersistBeforeSend
from stelae.sim.invariants.read_index import ReadIndex
from stelae.sim.invariants.replica_checksums import ReplicaChecksums
from stelae.sim.invariants.replica_creation import ReplicaCreation
from stelae.sim.invariants.replicas_without_rows import (
    NoServiceWithoutRows,
    VotersHaveRows,
    WitnessLog,
    WitnessRetention,
)
from stelae.sim.invariants.schema_changes import SchemaChanges
from stelae.sim.invariants.snapshot_repeatability import SnapshotRepeatability
from stelae.sim.invariants.source_epochs import EpochsOnlyRise
from stelae.sim.invariants.stale_messages import StaleMessages
from stelae.sim.invariants.state_machine_safety import StateMachineSafety
from stelae.sim.invariants.terms_and_votes import TermsAndVotes

INVARIANTS: tuple[type[Invariant], ...] = (
    ReplicaCreation,
    NoNeedlessDeletion,
    TombstonePromises,
    TombstonesVote,
    CopiedItemsVerified,
    CopiedLogKept,
    WitnessLog,
    WitnessRetention,
    VotersHaveRows,
    NoServiceWithoutRows,
    ElectionSafety,
    ElectedByMajority,
    LeaderAppendOnly,
    TermsAndVotes,
    StaleMessages,
    PersistBeforeSend,
    ElectionRestriction,
    FailedSync,
    LogBase,
    LogRetention,
    LogDurability,
    LogMatching,
    OneChangePending,
    ChangesAreFenced,
    NoNeedlessRemoval,
    VotersHaveCaughtUp,
    CommitRule,
    LeaseExclusive,
    ReadIndex,
    LeaderCompleteness,
    ConfigFollowsLog,
    HybridTimeOrder,
    SchemaChanges,
    StateMachineSafety,
    EpochsOnlyRise,
    ExactlyOnce,
    FlushDurability,
    ReplicaChecksums,
    SnapshotRepeatability,
    AcknowledgedWrites,
    Linearizability,
)
"""The invariants in the order in which they judge a fact: causes before their consequences."""

__all__ = ["INVARIANTS", "AppliedRequest", "FactListener", "Invariant", "ObservedLookup", "ObservedScan", "Violation"]
