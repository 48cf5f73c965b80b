"""What follows when a node has not served a request: the next node, now or after a pause, or an error."""

from __future__ import annotations

from stelae.client.leader_tracker import LeaderTracker
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.spi.errors import NotLeader, RetryableError, StelaeError, StorageError
from stelae.spi.ids import NodeId
from stelae.wire.refusals import RemoteError


def pause_after(error: StelaeError, tracker: LeaderTracker, node: NodeId, without_tablet: set[NodeId]) -> bool:
    """Record that a node has not served a request, and return whether to pause before the next node is asked.

    ``without_tablet`` has the nodes that answered that they do not have the tablet. Raises the error if no other node
    can serve the request."""
    if isinstance(error, NotLeader):
        return not tracker.refused_by(node, error.leader)
    if isinstance(error, NoSuchTablet):
        without_tablet.add(node)
        if without_tablet >= set(tracker.members):
            raise error
    elif not isinstance(error, RetryableError) and not (isinstance(error, RemoteError) and _is_of_storage(error)):
        raise error
    tracker.failed(node)
    return not isinstance(error, NoSuchTablet)


def _is_of_storage(error: RemoteError) -> bool:
    """Return whether a node could not read its disk or found damage. Another replica has the same rows then."""
    return issubclass(StelaeError.by_code.get(error.remote_code, StelaeError), StorageError)
