"""Samples that are computed from a running node at each scrape. Between scrapes they cost the node nothing.

They are computed on the thread of a scraper, beside the event loop. So this module only reads: numbers, immutable
snapshots (``status``), and copies of dictionaries, which the interpreter makes in one step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.replica_state import ReplicaState
from stelae.spi.consensus import Role
from stelae.spi.ids import TabletId

Sample: TypeAlias = tuple[str, tuple[str, ...], float]
"""A family's name, the values of its labels, and the value."""


class PoolLike(Protocol):
    """The part of a thread pool that is read here."""

    @property
    def name(self) -> str: ...
    @property
    def waiting(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _ReplicaReading:
    """The values of one replica."""

    name: TabletId
    state: str
    leads: bool
    term: int
    behind_entries: int | None  #: Of the slowest peer; ``None`` if this replica does not lead.
    unapplied_entries: int
    memory_bytes: int

    @property
    def rank(self) -> tuple[int, int, str]:
        """The sort key that puts replicas first which are furthest behind."""
        return (-(self.behind_entries or 0), -self.unapplied_entries, self.name)


class NodeSamples:
    """Computes the samples of a node.

    Args:
        node: a node that has started.
        pools: its thread pools.
        about: node id, cluster id, role and version.
        tablets_max: the most replicas with samples of their own; those furthest behind go first.
    """

    def __init__(
        self, node: Node, pools: Sequence[PoolLike], about: tuple[str, str, str, str], tablets_max: int
    ) -> None:
        self._node = node
        self._pools = pools
        self._about = about
        self._tablets_max = tablets_max

    def samples(self) -> Iterator[Sample]:
        """Yield every sample, family by family."""
        node = self._node
        yield "node_info", self._about, 1
        yield "log_queue_bytes", (), node.writer.queued_bytes
        yield "log_queue_limit_bytes", (), node.config.log.queue_bytes_max
        yield "disk_free_bytes", (), node.free_bytes()
        for pool in self._pools:
            yield "pool_tasks", (pool.name,), pool.waiting
        yield from _of_tablets(
            [_read(replica) for replica in list(node.replicas.values())], dict(node.failed_tablets), self._tablets_max
        )


def _of_tablets(tablets: list[_ReplicaReading], failed: Mapping[TabletId, str], tablets_max: int) -> Iterator[Sample]:
    states = Counter(tablet.state for tablet in tablets)
    states[ReplicaState.FAILED.value] += len(failed.keys() - {tablet.name for tablet in tablets})
    for state in ReplicaState:
        yield "replicas", (state.value,), states[state.value]
    yield "replicas_leading", (), sum(tablet.leads for tablet in tablets)
    yield "term_max", (), max((tablet.term for tablet in tablets), default=0)
    yield "store_memory_bytes", (), sum(tablet.memory_bytes for tablet in tablets)
    yield "replication_lag_entries", (), max((tablet.behind_entries or 0 for tablet in tablets), default=0)
    yield "apply_lag_entries", (), max((tablet.unapplied_entries for tablet in tablets), default=0)
    yield "tablets_unlisted", (), max(0, len(tablets) - tablets_max)
    for tablet in sorted(tablets, key=lambda tablet: tablet.rank)[:tablets_max]:
        name = (tablet.name,)
        if tablet.behind_entries is not None:
            yield "tablet_replication_lag_entries", name, tablet.behind_entries
        yield "tablet_apply_lag_entries", name, tablet.unapplied_entries
        yield "tablet_term", name, tablet.term
        yield "tablet_memory_bytes", name, tablet.memory_bytes


def _read(replica: Replica) -> _ReplicaReading:
    status, applier = replica.status, replica.applier
    behind: int | None = None
    if status.role is Role.LEADER:
        behind = max((status.last.index - peer.match_index for peer in status.peers), default=0)
    return _ReplicaReading(
        name=replica.tablet_id,
        state=replica.state.value,
        leads=status.role is Role.LEADER and status.serving and not replica.failure,
        term=status.term,
        behind_entries=None if behind is None else max(0, behind),
        unapplied_entries=max(0, status.commit - applier.applied.index),
        memory_bytes=applier.store.memory_bytes(),
    )
