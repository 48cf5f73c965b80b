"""The state that exists only while a replica leads: its peers, reads, lease, and what is in progress."""

from __future__ import annotations

import msgspec

from stelae.spi.ids import NodeId
from stelae_consensus_raft.progress import Progress
from stelae_consensus_raft.read_index import ReadQueue
from stelae_consensus_raft.read_lease import ReadLease


class Handover(msgspec.Struct):
    """A leadership transfer that is under way."""

    token: int | None  #: ``None`` if the leader hands over by itself, as a caretaker does.
    to: NodeId  #: The successor.
    deadline_us: int  #: When the leader gives up the transfer.
    for_change: bool = False  #: True if the token is that of a change of config that would end this leadership.
    timeout_now_sent: bool = False  #: True once the successor had all of the log and was asked to campaign.


class PendingChange(msgspec.Struct):
    """A change of config that this leader has appended and that is not committed yet."""

    token: int | None  #: ``None`` for a change of the leader's own.
    index: int  #: The index of the config entry.


class LeaderState:
    """The state that exists only while this replica leads."""

    __slots__ = (
        "first_index",
        "handover",
        "learners",
        "lease",
        "looked_at_us",
        "majority_changed",
        "own_change_from_us",
        "peers",
        "pending_change",
        "reads",
        "reads_sent_at_us",
        "voting",
        "witnesses",
    )

    def __init__(self, first_index: int, lease_length_us: int = 0) -> None:
        self.first_index = first_index
        """The index of the first entry of this leadership."""
        self.peers: dict[NodeId, Progress] = {}
        self.voting: list[Progress] = []
        """The voters among ``peers``: those that count towards a majority."""
        self.learners: list[Progress] = []
        """The other ``peers``."""
        self.witnesses: list[Progress] = []
        """Those of ``voting`` that are witnesses."""
        self.reads = ReadQueue()
        self.lease = ReadLease(lease_length_us)
        self.majority_changed = False
        """True from a change of the config until commit and read indexes are computed again for the new majority."""
        self.reads_sent_at_us = 0
        self.handover: Handover | None = None
        self.pending_change: PendingChange | None = None
        self.looked_at_us = 0
        """When the leader last needed a tick for the heartbeats of its learners. Only if there are no other voters."""
        self.own_change_from_us = 0
        """When the leader may try a change of its own again."""
