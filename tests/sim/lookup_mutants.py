"""Planted bugs in lookups: of the server, and of the columnar store."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.sim import lookup_mutations as mutations
from tests.sim.planted_bug import Mutant
from tests.sim.store_lookups import ROWS_KEPT_FROM, ROWS_TAKEN_FROM

LOOKUP_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="lookups: a leader that has lost its term answers",
        rule="durability 13, behaviour C14",
        target="stelae.server.tserver.lookups:Lookups._confirm",
        replacement=mutations.answer_without_confirmation,
        invariant="linearizability",
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="lookups: one for an earlier time gets the newest rows",
        rule="behaviour C14, contract store 5",
        target="stelae.server.tserver.lookups:Lookups._read",
        replacement=mutations.read_what_is_newest,
        invariant="snapshot_repeatability",
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: a decoded row group hides the deletion of its row from lookups",
        rule="contract store 5",
        target="stelae_store_columnar.point_lookup:PointLookup._decides",
        replacement=mutations.believe_the_cache,
        invariant="linearizability",
        seed=3,
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: the filters of merged blocks forget keys",
        rule="contract store 5",
        target="stelae_store_columnar.block_merging:BlockMerger._write",
        replacement=mutations.forget_keys_in_merges,
        invariant="snapshot_repeatability",
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: a lookup takes a partial version for a whole one",
        rule="contract store 6",
        target="stelae_store_columnar.begun_row:BegunRow.take",
        replacement=mutations.take_the_newest_version_as_it_is,
        invariant="snapshot_repeatability",
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: a batch of many keys has the rows of other keys",
        rule="contract store 5",
        target="stelae_store_columnar.found_keys:ManyKeys.result",
        replacement=mutations.give_keys_the_rows_of_others,
        constants=ROWS_TAKEN_FROM,
        invariant="snapshot_repeatability",
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: a completed row hides later versions from lookups",
        rule="contract store 5",
        target="stelae_store_columnar.point_lookup:PointLookup._decides",
        replacement=mutations.overlook_later_versions,
        constants=ROWS_KEPT_FROM,
        invariant="snapshot_repeatability",
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: a lookup for an earlier time is completed by a later row",
        rule="contract store 5",
        target="stelae_store_columnar.completed_rows:CompletedRows.get",
        replacement=mutations.complete_with_a_later_row,
        constants=ROWS_KEPT_FROM,
        invariant="snapshot_repeatability",
        seed=100,
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: a write on the event loop takes a row that only a file has for none",
        rule="contract store 1",
        target="stelae_store_columnar.prepared_writes:cached_state",
        replacement=mutations.take_unread_keys_for_new,
        invariant="state_machine_safety",
        seed=3,
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: a write on the event loop remembers a row of the blocks that memory has changed",
        rule="contract store 1",
        target="stelae_store_columnar.key_lookup:ColumnarLookup.find",
        replacement=mutations.prefer_what_the_blocks_had,
        invariant="state_machine_safety",
        seed=3,
    ),
    Mutant(
        kind=ProfileKind.LOOKUPS,
        name="columnar: a short scan returns an older version of a row",
        rule="contract store 5",
        target="stelae_store_columnar.short_read:ShortRead._take_whole",
        replacement=mutations.prefer_older_versions,
        invariant="snapshot_repeatability",
    ),
)
