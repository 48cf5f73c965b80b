"""Recovers a tablet that has lost its majority: what an operator asks of each survivor (``durability.md`` rule 29).

Functions on a ``Replica``, on the event loop. The core decides (``RecoverAlone``, ``StandDown``); it must have the
capability ``RECOVERS``."""

from stelae.host.member_changes import AbortDone, MembersChanged
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.spi.errors import Overloaded, RecoveryRefused, StelaeError, Unavailable
from stelae.spi.ids import NodeId, OpId


def recover_alone(replica: Replica, term: int, last: OpId, config_id: OpId, done: MembersChanged) -> None:
    """Make a replica the only voter of its tablet.

    ``done`` is called once: with the config once it is committed, or with an error. ``RecoveryRefused`` says why
    nothing was done; after ``NotLeader`` or ``Unavailable`` the outcome is unknown. The call can be repeated."""
    if (refusal := _refusal(replica)) is not None:
        done(refusal)
        return
    replica.collect_heartbeats()  # The core refuses a recovery if a leader was heard lately.
    replica.deliver(replica.member_changes.request_recovery(term, last, config_id, done))


def stand_down(replica: Replica, term: int, survivor: NodeId, done: AbortDone) -> None:
    """Let a replica leave its tablet to a survivor that is about to be recovered.

    ``done`` is called once: without an error when this is durable. The call can be repeated."""
    if (refusal := _refusal(replica)) is not None:
        done(refusal)
        return
    replica.collect_heartbeats()
    replica.deliver(replica.member_changes.request_stand_down(term, survivor, done))


def _refusal(replica: Replica) -> StelaeError | None:
    if replica.state is ReplicaState.FAILED:
        why = replica.failure or "its log or its store cannot be read"
        return RecoveryRefused(f"the replica has failed: {why}; restart its node, or make a new plan without it")
    if replica.state is ReplicaState.STOPPING:
        return Unavailable("the replica is stopping")
    return None if replica.accepts_input else Overloaded("the replica accepts no input now; ask again")
