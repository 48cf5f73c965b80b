"""What must happen in the runs whose clients look keys up: on the loop, on a worker, at past times, and refusals."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.sim.floors import never_met

SEEDS = range(1, 41)

WANTED = {
    "lookup.inline",
    "lookup.inline_in_part",
    "lookup.not_leader",
    "lookup.on_worker",
    "lookup.served",
    "lookup.too_old",
}


def test_keys_are_looked_up_in_every_way_and_no_invariant_is_violated() -> None:
    assert never_met(WANTED, SEEDS, ProfileKind.LOOKUPS) == []
