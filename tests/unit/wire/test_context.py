"""What every message that leaves carries."""

from __future__ import annotations

from stelae.client.local_time import NoTime
from stelae.spi.errors import ClockError
from stelae.spi.services import Buffer
from stelae.wire.envelope import decode_envelope
from stelae.wire.packets import Packet
from tests.unit.wire.worlds import HybridTime, context, identity


class UsedUp(HybridTime):
    """A hybrid clock at its ceiling, which cannot be saved."""

    def now(self) -> int:
        raise ClockError("the clock's ceiling cannot be raised")


def timestamp_of_a_message(time: HybridTime | NoTime) -> int:
    ours, sent = context(1), list[list[Buffer]]()
    ours.time = time
    peer = identity(2)
    ours.write(Packet(), peer.node_id, peer.incarnation_id, None, sent.append)
    return decode_envelope(bytes(sent[0][0])).timestamp


def test_a_message_carries_a_timestamp_of_its_own() -> None:
    time = HybridTime()
    assert timestamp_of_a_message(time) == time.last == 2


def test_a_clock_at_its_ceiling_silences_nobody() -> None:
    """A header need not be above what was given out, only not below it."""
    time = UsedUp()
    time.observe(4711)
    assert timestamp_of_a_message(time) == 4711


def test_a_client_has_no_time_to_pass_on() -> None:
    assert NoTime().last == timestamp_of_a_message(NoTime()) == 0
