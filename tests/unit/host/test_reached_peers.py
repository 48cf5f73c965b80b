"""A node whose link to a peer comes up sends it its heartbeat at once."""

from __future__ import annotations

from unittest.mock import MagicMock

import msgspec

from stelae.host.heartbeats import Beat
from stelae.host.peer_codec import PeerCodec
from stelae.host.peer_traffic import BEAT, PeerTraffic
from stelae.spi.consensus import Beats
from stelae.spi.ids import TabletId
from stelae_consensus_raft import RaftEngine
from tests.unit.consensus_raft.solo import A, B, C

TABLET = TabletId("t")


def test_a_peer_that_is_reached_gets_its_heartbeat_at_once_and_others_when_it_is_due() -> None:
    link = MagicMock()
    traffic = PeerTraffic(
        PeerCodec(RaftEngine.message_types), MagicMock(now_us=lambda: 1), MagicMock(), 200_000, MagicMock()
    )
    traffic.heartbeats.set_beats(TABLET, Beats(term=2, peers=(A, B)))
    traffic.peer_reached(A)  # The node has not started to send.
    traffic.start(link)
    assert [call.args[0] for call in link.send.call_args_list] == [A, B]
    link.send.reset_mock()
    traffic.peer_reached(B)
    traffic.peer_reached(C)
    ((to, kind, frames),) = [call.args for call in link.send.call_args_list]
    assert (to, kind) == (B, BEAT)
    assert msgspec.msgpack.decode(frames[0], type=Beat).tablets == ((TABLET, 2),)
