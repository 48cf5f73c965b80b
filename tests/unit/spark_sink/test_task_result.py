"""What tasks return becomes one result, and one line or one error for people."""

from __future__ import annotations

import pytest

from stelae.client import RowFailure, WriteResult
from stelae.spi.ids import SourceId, TabletId
from stelae.spi.write import SourceFence
from stelae_spark_sink.task_result import SAMPLES_MAX, RowsNotWritten, TaskResult, report, total_of

FENCE = SourceFence(SourceId("job"), 4)


def failed(count: int) -> WriteResult:
    failures = tuple(
        RowFailure(table="t", kind="insert", row=n, code="ALREADY_PRESENT", reason="a row exists", values={"id": n})
        for n in range(count)
    )
    return WriteResult(rows=100, failed=count, failures=failures, timestamp=7)


def test_tasks_without_rows_and_failed_attempts_count_nothing() -> None:
    assert total_of([]) is None and total_of([None]) is None
    total = total_of([None, TaskResult(FENCE)])
    assert total is not None and (total.rows, total.skipped) == (0, False)


def test_results_are_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    one = TaskResult(FENCE, tablets={TabletId("a")}, size_bytes=1000, retries=2)
    two = TaskResult(FENCE, tablets={TabletId("a"), TabletId("b")}, size_bytes=500, retries=1)
    one.add(failed(0))
    two.add(failed(0))
    two.add(failed(0))
    total = total_of([one, two])
    assert total is not None and (total.rows, total.tablets) == (300, {"a", "b"})
    report("t", total, fail=True)
    assert capsys.readouterr().err == "stelae: 300 of 300 rows are written to table 't' (1500 bytes, 3 retries)\n"


@pytest.mark.parametrize("count", [3, 70])
def test_rows_that_were_not_written_are_shown_and_bounded(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [TaskResult(FENCE) for _ in range(2)]
    for task in tasks:
        task.add(failed(count))
    total = total_of(tasks)
    assert total is not None and len(total.samples) <= SAMPLES_MAX
    with pytest.raises(RowsNotWritten) as error:
        report("t", total, fail=True)
    text = str(error.value)
    assert f"{200 - 2 * count} of 200 rows are written to table 't' (0 bytes, 0 retries); {2 * count} are not" in text
    assert "ALREADY_PRESENT: a row exists: id=0" in text and "failOnRowErrors" in text
    assert (f"and {2 * count - SAMPLES_MAX} more" in text) == (2 * count > SAMPLES_MAX)
    report("t", total, fail=False)
    assert "ALREADY_PRESENT" in capsys.readouterr().err


def test_an_epoch_that_was_complete_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    report("t", TaskResult(FENCE, skipped=True), fail=True)
    assert "epoch 4 of source 'job' is complete in table 't'; nothing was written" in capsys.readouterr().err
