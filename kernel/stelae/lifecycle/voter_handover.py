"""Passes term, vote and config from the voter of a tombstone to the replica that takes its place (rule 20)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from stelae.host.consensus_metadata import ConsensusMetadata, ConsensusRecord
from stelae.host.tombstone_voter import TombstoneVoter
from stelae.lifecycle.blocking_steps import Ask, OffLoop, Steps, Until
from stelae.lifecycle.startup_decisions import TabletFinding
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.lifecycle.tombstones import Tombstones
from stelae.spi.errors import StorageError
from stelae.spi.ids import TabletId
from stelae.spi.members import TabletConfig

if TYPE_CHECKING:
    from stelae.host.node import Node


def merged_by_voter(tombstones: Tombstones, tablet_id: TabletId, term: int, config: TabletConfig) -> Steps[None]:
    """Merge a term, and save a committed config, through the voter of a tombstone. Durable on return.

    A vote of the present term stays. Raises ``StorageError`` if the voter cannot be loaded or cannot save."""
    voter: TombstoneVoter | None = yield Ask(lambda done: tombstones.voter(tablet_id, done))
    if voter is None:
        raise StorageError(f"the voter of tablet {tablet_id} cannot be loaded")
    yield Ask(lambda done: voter.merge(term, config, done))


def host_with_votes(
    node: Node,
    loader: TabletLoader,
    look: Callable[[TabletId], Steps[TabletFinding]],
    tombstones: Tombstones,
    tablet_id: TabletId,
) -> Steps[None]:
    """Start the replica of a tablet whose superblock says READY, with every vote that its voter has given.

    The voter is held while the consensus metadata passes from it to the replica. Otherwise a vote could be given, after
    the metadata was read, that the replica does not know. Raises ``StorageError`` if the replica does not start; the
    tablet is offline then."""
    found = yield from look(tablet_id)
    recovered = yield OffLoop(lambda: loader.recover(found))
    if recovered is not None:
        tombstones.hold(tablet_id)
        try:
            node.host(replace(recovered, consensus=(yield from _final_metadata(node, loader, tablet_id))))
        finally:
            tombstones.release(tablet_id)
    if tablet_id not in node.replicas:
        raise StorageError(f"the replica does not start: {loader.failed.get(tablet_id)}")
    loader.forget_failure(tablet_id)


def _final_metadata(node: Node, loader: TabletLoader, tablet_id: TabletId) -> Steps[ConsensusRecord]:
    """Return the consensus metadata once no save of it is in progress. The voter is held."""
    voter = node.peers.voters.get(tablet_id)
    if voter is not None:
        yield from _last_vote_saved(voter, loader)
    metadata = ConsensusMetadata(node.files, node.layout, tablet_id)
    try:
        record: ConsensusRecord = yield OffLoop(metadata.load)
    except StorageError as error:
        loader.fail(tablet_id, f"its consensus metadata cannot be read: {error}; restart the node")
        raise
    return record


def _last_vote_saved(voter: TombstoneVoter, loader: TabletLoader) -> Steps[None]:
    """Wait until the voter has saved what it has promised. It repeats a save that fails; the tablet is offline then.

    Raises ``StorageError`` if the voter has stopped for good."""
    tablet_id = voter.tablet_id
    yield Until(lambda: voter.idle or bool(voter.failure))
    if voter.failure and not voter.stopped:
        loader.fail(tablet_id, f"{voter.failure}; the replica starts once its vote is saved, which is tried again")
        yield Until(lambda: voter.idle or voter.stopped)
    if voter.failure:
        loader.fail(tablet_id, f"its last vote may not be durable: {voter.failure}; restart the node")
        raise StorageError(f"the replica does not start: {voter.failure}")
