"""A cluster that is overloaded slows the tasks of a job, and does not fail them. The writer of the client is the real
one; the leaders of the tablets answer OVERLOADED for a while."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.client import Table
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.tablet_writer import TabletWriter
from stelae.client.turns import ClientTurns
from stelae.rows.operation_encoding import Operation
from stelae.spi.errors import Overloaded
from stelae.spi.ids import ClientId, NodeId
from stelae.spi.write import Answer, OpResult, WriteReply, decode_request, encode_reply
from stelae_spark_sink import task_writer
from stelae_spark_sink.task_writer import TaskFailed
from tests.unit.client.tablets import MemoryTablet
from tests.unit.spark_sink.conftest import MadeTable
from tests.unit.spark_sink.jobs import COLUMNS, held, job, tasks

ROWS = [(n, 1, "new") for n in range(600)]


class OverloadedLeader:
    """Answers the requests of writes to one tablet: ``refusals`` times with OVERLOADED, and then as the tablet does."""

    def __init__(self, tablet: MemoryTablet, refusals: int) -> None:
        self._tablet = tablet
        self._apply = tablet._apply
        self.left = refusals
        self._writer: TabletWriter | None = None

    def send(self, encoded: Operation, timeout_s: float, *, follows: bool = False) -> asyncio.Future[OpResult]:
        """Take an operation from the table, as the tablet of a connected client does."""
        if self._writer is None:
            self._writer = TabletWriter(
                self,
                LeaderTracker([NodeId("a")]),
                tablet_id=self._tablet.tablet_id,
                client_id=ClientId("c"),
                schema_version=1,
                rng=random.Random(1),
                defer=ClientTurns(asyncio.get_running_loop()).defer,
            )
            self._tablet.retries = self._writer.retries  # type: ignore[assignment]
        return self._writer.write(encoded, timeout_s, follows=follows)

    def call(self, to: NodeId, kind: str, frames: Sequence[Any], *, deadline_ms: int) -> asyncio.Future[Any]:
        """Answer a request of the writer, as the messenger does."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.left:
            self.left -= 1
            future.set_exception(Overloaded("the log queue is full"))
            return future
        answers = []
        for run in decode_request(frames[0]).sequences:
            for number, rows in enumerate(run.ops):
                one = Operation(run.kind, rows, is_arrow=len(run.ops) == 1, columns=run.columns, fence=run.fence)
                answers.append(Answer(run.first_sequence + number, 1, self._apply(one)))
        future.set_result(SimpleNamespace(body=[encode_reply(WriteReply(answers))]))
        return future


@pytest.fixture
def table(make_table: MadeTable) -> Table:
    """The table of the job."""
    return make_table("readings", COLUMNS, ["id"])


def overload(table: Table, monkeypatch: pytest.MonkeyPatch, refusals: int) -> list[OverloadedLeader]:
    """Let the leaders of all tablets answer OVERLOADED."""
    tablets: Any = table._table._tablets
    leaders = [OverloadedLeader(tablet, refusals) for tablet in tablets]
    for tablet, leader in zip(tablets, leaders, strict=True):
        monkeypatch.setattr(tablet, "send", leader.send)
    return leaders


@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_all_rows_arrive_if_every_tablet_is_overloaded_for_a_while(
    table: Table, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], operation: str
) -> None:
    monkeypatch.setattr(task_writer, "WRITE_ROWS", 100)
    leaders = overload(table, monkeypatch, 4)
    writer = job(operation=operation)
    messages = tasks(writer, ROWS[:300], ROWS[300:])
    assert [leader.left for leader in leaders] == [0, 0, 0]
    writer.commit(messages)
    assert held(table) == dict.fromkeys(range(600), (1, "new"))
    assert sum(message.retries for message in messages) >= 12
    assert "600 of 600 rows are written" in capsys.readouterr().err


def test_a_task_fails_if_tablets_are_overloaded_for_as_long_as_a_write_is_retried(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``failOnRowErrors``, too: the rows are not at fault, and the task is repeated."""
    overload(table, monkeypatch, 1 << 30)
    with pytest.raises(TaskFailed, match=r"(?s)the log queue is full.*the task has to be repeated"):
        tasks(job(timeoutSeconds="0.2", failOnRowErrors="false"), ROWS[:100])
    assert held(table) == {}
