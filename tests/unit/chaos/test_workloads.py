"""What a client concludes from the result of a write."""

from __future__ import annotations

import pytest

from stelae.client import WriteResult
from stelae_chaos.operations import ChaosOutcome
from stelae_chaos.workloads import WriteAnswer, answer_of


@pytest.mark.parametrize(
    ("counts", "answer"),
    [
        ({}, WriteAnswer(ChaosOutcome.DONE, "", 7)),
        ({"ALREADY_PRESENT": 1}, WriteAnswer(ChaosOutcome.DONE, "ALREADY_PRESENT", 7)),
        ({"NOT_FOUND": 1}, WriteAnswer(ChaosOutcome.DONE, "NOT_FOUND", 7)),
        ({"UNKNOWN_OUTCOME": 8}, WriteAnswer(ChaosOutcome.UNKNOWN, "UNKNOWN_OUTCOME")),
        ({"OVERLOADED": 8}, WriteAnswer(ChaosOutcome.REFUSED, "OVERLOADED")),
    ],
)
def test_codes_of_rows_are_answers_and_others_mean_that_nothing_was_written(
    counts: dict[str, int], answer: WriteAnswer
) -> None:
    failed = sum(counts.values())
    assert answer_of(WriteResult(rows=8, failed=failed, failures=(), counts=counts, timestamp=7)) == answer
