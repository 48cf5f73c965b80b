"""A whole history: each planted error is found, and by the right check."""

from __future__ import annotations

import msgspec
import pytest

from stelae_chaos.append_check import AppendedRow, text_of
from stelae_chaos.counter_check import CountedRow
from stelae_chaos.history import ChaosHistory, LastRows
from stelae_chaos.operations import decoder
from tests.unit.chaos.histories import append, batch, counted, increment, read, rows, snapshot, write


def history() -> ChaosHistory:
    """A history in which every workload is right."""
    made = ChaosHistory()
    made.add([write(1, 2, "a"), read(3, 4, "a"), append(1), increment(1, 2), counted(3, 4, 1)])
    made.add([batch(1, 100), snapshot(150, rows(1))])
    return made


LAST = LastRows(registers=[7], appends=[AppendedRow(0, 1, text_of(0, 1))], counters=[CountedRow(3, 0, 10)])


def test_a_right_history_has_no_findings() -> None:
    assert history().judge(LAST) == []


def test_an_operation_is_the_same_after_its_way_through_a_line_of_json() -> None:
    for one in history().all():
        assert decoder.decode(msgspec.json.encode(one)) == one


@pytest.mark.parametrize(
    ("kind", "check"),
    [("registers", "registers"), ("appends", "appends"), ("increments", "counters"), ("batches", "snapshot sums")],
)
def test_a_write_that_is_dropped_from_the_history_is_found(kind: str, check: str) -> None:
    """The rows then come from nowhere, as those of a store that invents them."""
    planted = history()
    getattr(planted, kind).pop(0)
    assert {finding.check for finding in planted.judge(LAST)} == {check}


def test_a_row_that_is_dropped_from_a_table_is_found() -> None:
    assert [finding.check for finding in history().judge(LAST._replace(appends=[]))] == ["appends"]
    assert [finding.check for finding in history().judge(LAST._replace(counters=[]))] == ["counters"]


def test_a_register_with_two_rows_is_found_though_the_last_one_has_the_right_value() -> None:
    (finding,) = history().judge(LAST._replace(registers=[7, 7]))
    assert (finding.key, finding.fact) == ("key 7", "the last scan returned 2 rows with this key")


def test_a_history_whose_rows_cannot_be_read_is_judged_by_what_clients_saw() -> None:
    assert history().judge(None) == []
    planted = history()
    planted.add([read(5, 6, "z")])
    assert [finding.check for finding in planted.judge(None)] == ["registers"]
