"""What must happen in the runs whose clients look keys up: on the loop, on a worker, at past times, refusals, in merged
blocks and with completed rows."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.sim.first_seeds import in_order
from tests.sim.floors import never_met
from tests.sim.planting import with_constants
from tests.sim.store_lookups import ROWS_KEPT_FROM, ROWS_TAKEN_FROM

SEEDS = range(1, 41)
FIRST = (17, 3)
"""Shows what is rare."""

WANTED = {
    "lookup.completed_row",
    "lookup.completed_row_too_late",
    "lookup.inline",
    "lookup.inline_in_part",
    "lookup.merged_block",
    "lookup.not_leader",
    "lookup.on_worker",
    "lookup.page",
    "lookup.served",
    "lookup.taken",
    "lookup.too_old",
    "short_scan.inline",
    "short_scan.on_worker",
    "short_scan.read",
    "short_scan.too_old",
}


def test_keys_are_looked_up_and_few_rows_scanned_in_every_way_and_no_invariant_is_violated() -> None:
    with with_constants(ROWS_KEPT_FROM | ROWS_TAKEN_FROM):
        assert never_met(WANTED, in_order(FIRST, SEEDS), ProfileKind.LOOKUPS) == []
