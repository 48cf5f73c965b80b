"""An append fails in the turn in which another leader replaces entries before it: cache and core agree afterwards."""

from __future__ import annotations

from stelae.host.peer_codec import PeerMessage, PeerMessageHeader
from stelae.spi.errors import Full
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae_consensus_raft.messages import AppendEntries
from tests.unit.host.test_suspended import ALIVE, DEAD, LAST, LOG, TABLET, World


def entry(index: int, term: int) -> Entry:
    return Entry(OpId(term, index), EntryKind.WRITE, index, b"x")


def arrives(world: World, sender: NodeId, message: AppendEntries, *entries: Entry) -> None:
    header = PeerMessageHeader(TABLET, message.term, ZERO, ZERO)
    world.replica.receive(sender, PeerMessage(header, "raft", message, entries))


def test_a_full_disk_and_a_replacement_in_one_turn_leave_the_entries_of_the_core_in_the_cache() -> None:
    """The cache had the replaced entries below the new ones: the replica applied entries that were never committed."""
    world = World()
    cache = world.replica.executor._cache
    arrives(world, ALIVE, AppendEntries(term=1, prev=LAST, commit=5), entry(6, 1), entry(7, 1))
    world.run()
    world.disk()
    arrives(world, ALIVE, AppendEntries(term=1, prev=OpId(1, 7), commit=5), entry(8, 1))
    world.run()
    new = AppendEntries(term=2, prev=LAST, commit=7)
    arrives(world, DEAD, new, entry(6, 2), entry(7, 2))
    world.disk(Full("no space"))
    assert world.replica.core.status().last == LAST and cache.end_index == 6
    world.repair()
    arrives(world, DEAD, new, entry(6, 2), entry(7, 2))
    world.run()
    assert cache.get(6, 8, 1 << 20) == [entry(6, 2), entry(7, 2)] and cache.end_index == 8
    world.disk()
    assert world.writer.durable(LOG) == OpId(2, 7) and not world.replica.failure
