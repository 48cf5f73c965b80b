"""What is answered by a replica that has failed or was stopped.

Its status stays as it was at that moment: one that led seems to lead for ever."""

from __future__ import annotations

from typing import TypeVar

from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.spi.consensus import Role
from stelae.spi.errors import Unavailable

_T = TypeVar("_T")


def has_stopped(replica: Replica) -> bool:
    """Return whether a replica has failed or was stopped."""
    return replica.state in (ReplicaState.FAILED, ReplicaState.STOPPING)


def leads(replica: Replica) -> bool:
    """Return whether a replica serves as the leader of its tablet."""
    return replica.status.role is Role.LEADER and replica.status.serving and not has_stopped(replica)


def refuse_stopped(replica: Replica) -> None:
    """Refuse to tell what a replica knew before it failed or was stopped: others may know better by now.

    Raises:
        Unavailable: it has failed, or was stopped.
    """
    if has_stopped(replica):
        why = f": {replica.failure}" if replica.failure else ""
        raise Unavailable(f"the replica is {replica.state.value}{why}; ask another one")


def unless_stopped(replica: Replica, found: _T) -> _T | Unavailable:
    """Return what was read off the loop, or an error if the replica has failed or was stopped meanwhile.

    Its store may have been closed, and its files moved, while they were read."""
    if has_stopped(replica):
        return Unavailable(f"the replica is {replica.state.value}; try again")
    return found
