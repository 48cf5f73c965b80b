"""Errors that no fault can cause are found, also if nothing is lost by them."""

from __future__ import annotations

import pytest

from stelae.spi.errors import DeadlineExceeded
from stelae.wire.refusals import RemoteError
from stelae_chaos.answer_check import check_answers
from stelae_chaos.history import ChaosHistory, LastRows
from stelae_chaos.operations import AnyOperation
from stelae_chaos.workloads import register_value, unknown
from tests.unit.chaos.histories import DONE, REFUSED, UNKNOWN, append, batch, increment, read, write


def test_errors_that_faults_cause_are_no_findings() -> None:
    codes = ("OVERLOADED", "UNAVAILABLE", "DEADLINE", "UNKNOWN_OUTCOME", "NOT_LEADER", "SNAPSHOT_TOO_OLD", "CLOCK")
    asked = [append(number, UNKNOWN, code) for number, code in enumerate(codes)]
    assert check_answers([*asked, append(9, DONE, "ALREADY_PRESENT")]) == []


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (append(1, REFUSED, "PAYLOAD_MISMATCH"), "PAYLOAD_MISMATCH"),
        (append(1, UNKNOWN, "INTERNAL"), "INTERNAL"),
        (append(1, DONE, "NOT_FOUND"), "NOT_FOUND"),
        (increment(1, 2, DONE, "NOT_FOUND"), "NOT_FOUND"),
        (batch(1, 100, DONE, "ALREADY_PRESENT"), "ALREADY_PRESENT"),
        (batch(1, 100, REFUSED, "OUTSIDE_PARTITION"), "OUTSIDE_PARTITION"),
    ],
)
def test_an_answer_that_cannot_be_is_found(operation: AnyOperation, code: str) -> None:
    """It counted as a write without effect, or as an operation without an answer, and the run was clean."""
    history = ChaosHistory()
    history.add([operation])
    (finding,) = history.judge(LastRows([], [], []))
    assert (finding.check, finding.key) == ("answers", code)
    assert finding.operations == (str(operation),)


def test_the_operations_of_one_code_are_one_finding_with_the_first_of_them() -> None:
    (finding,) = check_answers([append(number, UNKNOWN, "INTERNAL") for number in range(50, 0, -1)])
    assert "50 times" in finding.fact
    assert finding.operations[:2] == (str(append(1, UNKNOWN, "INTERNAL")), str(append(2, UNKNOWN, "INTERNAL")))
    assert len(finding.operations) == 12


def test_an_error_of_a_node_has_the_code_that_the_node_gave_it() -> None:
    """Every error that the client does not rebuild had the code ``REMOTE``."""
    assert unknown(RemoteError("CORRUPT", "a block fails its checksum")).error == "CORRUPT"
    assert unknown(DeadlineExceeded("no answer")).error == "DEADLINE"


@pytest.mark.parametrize("row", [{"id": 7, "text": None}, {"id": 8, "text": "a"}])
def test_a_row_that_no_client_has_written_is_not_taken_for_no_row_or_for_another(row: dict[str, object]) -> None:
    """A null was taken for no row, and the row of another key for that of the key that was read."""
    history = ChaosHistory()
    history.add([write(1, 2, "a"), read(3, 4, register_value(7, row))])
    (finding,) = history.judge(None)
    assert finding.check == "registers"
    assert register_value(7, {"id": 7, "text": "a"}) == "a"
