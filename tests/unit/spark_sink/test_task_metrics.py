"""What a task tells the driver about its rows: their number, their bytes, and how often the client retried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from stelae.client import WriteResult
from stelae.spi.ids import SourceId
from stelae.spi.write import SourceFence
from stelae_spark_sink import task_writer
from stelae_spark_sink.options import SourceOptions, Use


class RetryingTable:
    """A table whose client sends each request three times. It was used by another task before."""

    name = "t"
    table_id = "t1"
    schema = SimpleNamespace(by_name={}, key_layout=SimpleNamespace(columns=[SimpleNamespace(name="id")]))
    tablets: Sequence[str] = ()

    def __init__(self) -> None:
        self.retries = Counter(NOT_LEADER=7)

    def epoch(self, source: str, epoch: int) -> RetryingTable:
        return self

    def write(self, kind: Any, rows: Any, **options: Any) -> WriteResult:
        self.retries.update(NOT_LEADER=1, UNAVAILABLE=1)
        return WriteResult(rows=sum(part.num_rows for part in rows), failed=0, failures=(), timestamp=1)


def test_a_task_counts_its_own_rows_bytes_and_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "table_of", lambda options: RetryingTable())
    monkeypatch.setattr(task_writer, "WRITE_ROWS", 10)
    options = SourceOptions({"masters": "127.0.0.1:7051", "table": "t"}, Use.WRITE)
    batch = pa.record_batch({"id": pa.array(range(10), pa.int64())})
    result = task_writer.write_task(options, SourceFence(SourceId("job"), 0), [batch, batch.slice(0, 0), batch])
    assert (result.rows, result.size_bytes, result.retries) == (20, 160, 4)
