"""What a read answers whose replica was stopped meanwhile."""

from __future__ import annotations

from typing import TypeVar

from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.spi.errors import Unavailable

_T = TypeVar("_T")


def unless_stopped(replica: Replica, found: _T) -> _T | Unavailable:
    """Return what was read off the loop, or an error if the replica has failed or was stopped meanwhile.

    Its store may have been closed, and its files moved, while they were read."""
    if replica.state in (ReplicaState.FAILED, ReplicaState.STOPPING):
        return Unavailable(f"the replica is {replica.state.value}; try again")
    return found
