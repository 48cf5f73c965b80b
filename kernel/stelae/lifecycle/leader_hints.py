"""Repeats the first campaign of a new tablet while its other members are still being created.

All members of a tablet are created at the same time, and the hinted leader campaigns as soon as its own replica exists.
A member that does not exist yet, or is not connected, does not get the vote request, and without an answer a candidate
campaigns again only after an election timeout. A new tablet should not wait that long, so the hint is repeated a few
times until a term has begun. That is safe: each hint only starts another pre-vote."""

from __future__ import annotations

from stelae.host.ports import Turns
from stelae.host.replica import Replica
from stelae.spi.consensus_events import Campaign

PAUSES_US = (50_000, 100_000, 200_000, 400_000)
"""The pauses between hints. They grow, so that at least one of them is long enough for the answers. Their sum is less
than the election timeout."""


def repeat_hint(replica: Replica, turns: Turns, attempt: int = 0) -> None:
    """Repeat the hint to the hinted leader of a new tablet until a term has begun."""

    def due() -> None:
        status = replica.status
        if replica.failure or status.term > 0 or status.leader is not None:
            return
        replica.deliver(Campaign(hinted=True))
        repeat_hint(replica, turns, attempt + 1)

    if attempt < len(PAUSES_US):
        turns.call_at(turns.now_us() + PAUSES_US[attempt], due)
