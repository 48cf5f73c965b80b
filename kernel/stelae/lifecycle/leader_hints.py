"""The first leader of a new tablet asks for votes again while its peers are still being made.

All members of a tablet are created side by side, and the hinted leader campaigns as soon as it is there itself. Whoever
is not there yet, or not connected, does not hear it, and nobody who campaigns in vain tries again before an election
timeout has passed. A new tablet should not wait for that: so the hint is given again, a few times, until some term has
begun. It changes nothing that a campaign does not change: a pre-vote is asked for anew."""

from __future__ import annotations

from stelae.host.ports import Turns
from stelae.host.replica import Replica
from stelae.spi.consensus import Campaign

AGAIN_US = (50_000, 100_000, 200_000, 400_000)
"""Pauses between hints. They grow, so that one of them leaves answers the time that they need; together they take less
than the election timeout, which is waited for after that as ever."""


def hint_again(replica: Replica, turns: Turns, attempt: int = 0) -> None:
    """See to it that a replica that was hinted to lead a new tablet does not wait for peers that come a moment late."""

    def due() -> None:
        status = replica.status
        if replica.failure or status.term > 0 or status.leader is not None:
            return
        replica.deliver(Campaign(hinted=True))
        hint_again(replica, turns, attempt + 1)

    if attempt < len(AGAIN_US):
        turns.call_at(turns.now_us() + AGAIN_US[attempt], due)
