"""Stories that violate an invariant of the rows of a replica, and some that violate none."""

from __future__ import annotations

from collections.abc import Callable

from stelae.host.exactly_once_results import ResultsTable
from stelae.host.superblock import Superblock
from stelae.sim.history import ClientAction, ClientOperation, HistoryRow
from stelae.sim.invariants import ObservedLookup, ObservedScan
from stelae.spi.ids import ClientId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import encode_config
from stelae.spi.payload import PayloadClient, PayloadSequenceRange, WritePayload
from tests.unit.sim.rig import CONFIG, LOG, Rig, applied, begin, committed, done, entry, history, write

EMPTY = ResultsTable().dump()


def block(index: int, results: bytes = EMPTY) -> Superblock:
    return Superblock(tablet_id=LOG.tablet_id, flushed=OpId(1, index), results=results)


def results_of(*sequences: int) -> bytes:
    """A table that knows writes of client ``c``."""
    table = ResultsTable()
    for sequence in sequences:
        payload = WritePayload(
            1, (PayloadClient(ClientId("c"), 1),), (PayloadSequenceRange(0, sequence, (1,), (0,)),), ()
        )
        table.record(table.admit(payload, 1), [])
    return table.dump()


def scan(rig: Rig, at: int, *rows: tuple[int, str], position: int = 0) -> None:
    node = rig.world.nodes[position]
    rig.facts.scanned(node, ObservedScan(at, node.floor, rows))


def refuse(rig: Rig, at: int, floor: int) -> None:
    node = rig.world.nodes[0]
    rig.facts.scanned(node, ObservedScan(at, node.floor, None, floor))


# -- snapshot repeatability -----------------------------------------------------------------------


def a_read_in_the_past_returns_the_present_rows(rig: Rig) -> None:
    history(rig)
    scan(rig, 1, (1, "b"))


def a_read_in_the_past_returns_no_rows(rig: Rig) -> None:
    history(rig)
    scan(rig, 2)


def a_row_is_read_twice(rig: Rig) -> None:
    history(rig)
    scan(rig, 2, (1, "b"), (1, "b"))


def two_replicas_read_differently(rig: Rig) -> None:
    history(rig)
    scan(rig, 2, (1, "b"))
    scan(rig, 2, (1, "a"), position=2)


def a_read_below_the_floor_is_answered(rig: Rig) -> None:
    history(rig)
    rig.facts.floor_raised(rig.world.nodes[0], 2)
    scan(rig, 1, (1, "a"))


def a_read_at_the_floor_is_refused(rig: Rig) -> None:
    history(rig)
    rig.facts.floor_raised(rig.world.nodes[0], 2)
    refuse(rig, 2, 3)


def a_refusal_names_a_floor_that_was_never_set(rig: Rig) -> None:
    history(rig)
    rig.facts.floor_raised(rig.world.nodes[0], 3)
    refuse(rig, 2, 4)


def a_restarted_store_serves_a_scan_without_the_dropped_rows(rig: Rig) -> None:
    """After a restart the floor may be lower than before, but scans below the old floor are right or are refused."""
    history(rig)
    node = rig.world.nodes[0]
    rig.facts.floor_raised(node, 2)
    rig.facts.store_opened(node, OpId(1, 2))
    scan(rig, 1)


def a_scan_is_served_above_the_time_of_a_later_entry(rig: Rig) -> None:
    """A replica that serves a time without a leader's confirmation misses entries that are not in its log yet."""
    history(rig)
    scan(rig, 9, (1, "b"))
    for position in range(3):
        rig.append(position, entry(1, 3, timestamp=8))
    rig.ready(0, commit=3)
    rig.apply(0, entry(1, 3))


def a_reader_does_not_see_its_own_write(rig: Rig) -> None:
    history(rig)
    rig.facts.scanned(rig.world.nodes[1], ObservedScan(1, 0, ((1, "a"),), at_least=2))


def look_up(rig: Rig, at: int, *rows: tuple[int, str | None], ids: tuple[int, ...] = (1, 2)) -> None:
    node = rig.world.nodes[1]
    found = tuple((key, None if value is None else (key, value)) for key, value in rows)
    rig.facts.looked_up(node, ObservedLookup(at, node.floor, ids, found))


def a_lookup_in_the_past_returns_the_present_row(rig: Rig) -> None:
    history(rig)
    look_up(rig, 1, (1, "b"))


def a_lookup_does_not_find_a_row(rig: Rig) -> None:
    history(rig)
    look_up(rig, 2, (7, None), (1, None))


def a_lookup_finds_a_row_that_was_never_written(rig: Rig) -> None:
    history(rig)
    look_up(rig, 2, (7, "b"))


def a_lookup_below_the_floor_is_answered(rig: Rig) -> None:
    history(rig)
    rig.facts.floor_raised(rig.world.nodes[1], 2)
    look_up(rig, 1, (1, "a"))


def a_lookup_returns_columns_that_no_schema_has(rig: Rig) -> None:
    history(rig)
    look_up(rig, 2, (1, "b"), ids=(1, 9))


def a_lookup_is_served_above_the_time_of_a_later_entry(rig: Rig) -> None:
    history(rig)
    look_up(rig, 9, (1, "b"))
    for position in range(3):
        rig.append(position, entry(1, 3, timestamp=8))
    rig.ready(0, commit=3)
    rig.apply(0, entry(1, 3))


# -- checksums ------------------------------------------------------------------------------------


def checksum(rig: Rig, index: int, reported: str | None = None, position: int = 0) -> None:
    right = rig.world.agreed.checksum(index)
    rig.facts.checksum(rig.world.nodes[position], "columnar", index, right if reported is None else reported)


def replicas_differ(rig: Rig) -> None:
    history(rig)
    checksum(rig, 1)
    checksum(rig, 1, rig.world.agreed.checksum(2), position=1)


def a_restarted_store_has_older_rows(rig: Rig) -> None:
    history(rig)
    checksum(rig, 2, rig.world.agreed.checksum(1))


# -- flush ----------------------------------------------------------------------------------------


def a_store_flushes_entries_that_its_log_does_not_hold(rig: Rig) -> None:
    committed(rig, entry(1, 1))
    rig.world.nodes[0].durable.clear()
    rig.facts.proposed(rig.world.nodes[0], OpId(1, 1))


def a_superblock_names_a_file_that_is_not_synced(rig: Rig) -> None:
    rig.facts.saved(rig.world.nodes[0], block(0), ["00000001.parquet"])


def a_superblock_goes_back(rig: Rig) -> None:
    rig.facts.saved(rig.world.nodes[0], block(2), [])
    rig.facts.saved(rig.world.nodes[0], block(1), [])


def a_start_finds_an_older_superblock(rig: Rig) -> None:
    rig.facts.saved(rig.world.nodes[0], block(2), [])
    rig.facts.store_opened(rig.world.nodes[0], OpId(1, 1))


def a_needed_file_is_removed(rig: Rig) -> None:
    rig.facts.missing(rig.world.nodes[0], ["00000001.parquet"])


def the_log_is_collected_above_the_flushed_op_id(rig: Rig) -> None:
    committed(rig, entry(1, 1), entry(1, 2), entry(1, 3))
    rig.facts.saved(rig.world.nodes[0], block(2), [])
    rig.facts.collect(rig.world.nodes[0], LOG, 2)
    assert rig.violated is None
    rig.facts.collect(rig.world.nodes[0], LOG, 3)


def a_config_is_collected_before_it_is_saved(rig: Rig) -> None:
    node = rig.world.nodes[0]
    carrier = Entry(OpId(1, 1), EntryKind.CONFIG, 1, encode_config(CONFIG))
    committed(rig, carrier, entry(1, 2))
    rig.facts.saved(node, block(2), [])
    rig.facts.collect(node, LOG, 2)


# -- exactly once ---------------------------------------------------------------------------------


def a_flush_forgets_results(rig: Rig) -> None:
    history(rig)
    rig.facts.saved(rig.world.nodes[0], block(2, results_of(1)), [])


def a_repetition_changes_a_row_again(rig: Rig) -> None:
    history(rig)
    for position in range(3):
        rig.append(position, entry(1, 3))
    rig.ready(0, commit=3)
    again = OpId(1, 3)
    rig.facts.applied(rig.world.nodes[0], again, [applied(again, 1, skipped=True)])
    rig.facts.changed(rig.world.nodes[0], again, {1: ("a",)})


def an_entry_changes_no_row(rig: Rig) -> None:
    history(rig)
    rig.facts.changed(rig.world.nodes[0], OpId(1, 2), {})


# -- linearizability, at the end of a run ---------------------------------------------------------


def an_insert_replaces_a_row_on_every_replica(rig: Rig) -> None:
    """Log and all replicas agree with each other. Only a checker that knows the meaning of an insert finds it."""
    committed(rig, entry(1, 1), entry(1, 2))
    for sequence, value in ((1, "a"), (2, "b")):
        operation = begin(rig, write(sequence, ClientAction.INSERT, value), 2 * sequence)
        rig.apply(0, entry(1, sequence), applied(OpId(1, sequence), sequence))
        operation.answered, operation.answer = 2 * sequence + 1, done(at=sequence)
        rig.facts.answered(operation, operation.answer)
    assert rig.violated is None
    rig.facts.at_end()


FAULTY_STORES: dict[str, list[Callable[[Rig], None]]] = {
    "snapshot_repeatability": [
        a_read_in_the_past_returns_the_present_rows,
        a_read_in_the_past_returns_no_rows,
        a_row_is_read_twice,
        two_replicas_read_differently,
        a_read_below_the_floor_is_answered,
        a_read_at_the_floor_is_refused,
        a_refusal_names_a_floor_that_was_never_set,
        a_restarted_store_serves_a_scan_without_the_dropped_rows,
        a_scan_is_served_above_the_time_of_a_later_entry,
        a_reader_does_not_see_its_own_write,
        a_lookup_in_the_past_returns_the_present_row,
        a_lookup_does_not_find_a_row,
        a_lookup_finds_a_row_that_was_never_written,
        a_lookup_below_the_floor_is_answered,
        a_lookup_returns_columns_that_no_schema_has,
        a_lookup_is_served_above_the_time_of_a_later_entry,
    ],
    "replica_checksums": [replicas_differ, a_restarted_store_has_older_rows],
    "flush_durability": [
        a_store_flushes_entries_that_its_log_does_not_hold,
        a_superblock_names_a_file_that_is_not_synced,
        a_superblock_goes_back,
        a_start_finds_an_older_superblock,
        a_needed_file_is_removed,
    ],
    "log_base": [the_log_is_collected_above_the_flushed_op_id, a_config_is_collected_before_it_is_saved],
    "exactly_once": [a_flush_forgets_results, a_repetition_changes_a_row_again, an_entry_changes_no_row],
    "linearizability": [an_insert_replaces_a_row_on_every_replica],
}


# -- legal stories --------------------------------------------------------------------------------


def an_ordinary_history_of_a_store(rig: Rig) -> None:
    """Reads, a flush, a history floor, a restart, and a read that is refused as too old."""
    history(rig)
    scan(rig, 1, (1, "a"))
    scan(rig, 2, (1, "b"), position=1)
    scan(rig, 0)
    look_up(rig, 1, (1, "a"), (7, None), (1, "a"))
    look_up(rig, 0, (1, None))
    look_up(rig, 2, (1, "b"))
    node = rig.world.nodes[0]
    checksum(rig, 1)
    checksum(rig, 2, position=2)
    rig.facts.changed(node, OpId(1, 2), {1: ("b",)})
    rig.facts.proposed(node, OpId(1, 2))
    rig.facts.saved(node, block(2, results_of(1, 2)), [])
    rig.facts.collect(node, LOG, 2)
    rig.facts.floor_raised(node, 2)
    refuse(rig, 1, 2)
    scan(rig, 2, (1, "b"))
    rig.facts.store_opened(node, OpId(1, 2))
    scan(rig, 1, (1, "a"))
    refuse(rig, 1, 2)
    rig.facts.at_end()


def unknown_outcomes(rig: Rig) -> None:
    """An unanswered write, and a delete of the row that only this write can have inserted."""
    committed(rig, entry(1, 1), entry(1, 2))
    begin(rig, write(1, value="a"), 1)
    rig.apply(0, entry(1, 1), applied(OpId(1, 1), 1))
    gone = ClientOperation(client="c", sequence=2, action=ClientAction.DELETE, rows=(HistoryRow(1, ""),))
    begin(rig, gone, 2)
    rig.apply(0, entry(1, 2), applied(OpId(1, 2), 2))
    gone.answered, gone.answer = 3, done(at=2)
    rig.facts.answered(gone, gone.answer)
    rig.facts.at_end()


FAULTLESS: list[Callable[[Rig], None]] = [an_ordinary_history_of_a_store, unknown_outcomes]
