"""The closed loop of appends: a fixed number in flight on each log, each acknowledged, none lost to a full queue."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from stelae.host.log_writer import Completion, LogWriter
from stelae.spi.errors import Full
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.log import Entry
from stelae.spi.wal import Append, Durable, Failed, Outcome, WalEngine
from stelae_bench.wal_cases import Bodies
from stelae_bench.wal_loop import AppendLoop
from stelae_bench.wal_open import GroupRecorder

LOGS = [LogId(TabletId(f"t{number}"), 1) for number in range(3)]
ENTRY_BYTES = 100
COLLECT_ENTRIES = 100


class Engine:
    """Keeps entries in memory; refuses everything from one group on, if told to."""

    def __init__(self, full_at: int = -1) -> None:
        self.entries: dict[LogId, list[Entry]] = {log: [] for log in LOGS}
        self._groups_left = full_at
        self.answers = 0
        self.collected: dict[LogId, list[int]] = {log: [] for log in LOGS}

    def collect(self, log: LogId, upto: int) -> None:
        assert upto <= self.entries[log][-1].op_id.index, "nothing goes that was not acknowledged"
        self.collected[log].append(upto)

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        assert sync
        self._groups_left -= 1
        if self._groups_left == -1:
            return {log: Failed(Full("no space", path="t"), ZERO) for log in group}
        for log, append in group.items():
            self.entries[log] += append.entries
        return {log: Durable(self.entries[log][-1].op_id) for log in group}


def run(
    engine: Engine, *, in_flight: int, entries: int, queue_bytes_max: int = 1 << 20
) -> tuple[AppendLoop, list[int], float]:
    """Append with a writer whose thread is the loop itself; completions are handed over one by one."""

    async def go() -> tuple[AppendLoop, list[int], float]:
        recorder = GroupRecorder(cast(WalEngine, engine))
        loop = asyncio.get_running_loop()

        def work() -> None:
            while (found := writer.take_work()) is not None:
                writer.post(writer.perform(found, cast(WalEngine, recorder)))

        def post(completions: list[Completion]) -> None:
            engine.answers += len(completions)
            for callback, argument in completions:
                loop.call_soon(callback, argument)

        writer = LogWriter(
            lock=threading.Lock(),
            wake=lambda: cast(None, loop.call_soon(work)),
            post=post,
            queue_bytes_max=queue_bytes_max,
            group_bytes_max=1 << 20,
        )
        for log in LOGS:
            writer.open_log(log, ZERO)

        def defer(call: Callable[[], None]) -> None:
            loop.call_soon(call)

        appends = AppendLoop(writer, LOGS, defer, engine.collect, COLLECT_ENTRIES * ENTRY_BYTES)
        took_s = await appends.run(Bodies(ENTRY_BYTES, 1), in_flight, math.inf, entries)
        return appends, recorder.groups, took_s

    return asyncio.run(asyncio.wait_for(go(), 20))


@pytest.mark.parametrize(("in_flight", "entries"), [(1, 1), (1, 100), (7, 300), (64, 1000)])
def test_every_append_is_acknowledged_and_indexes_have_no_gap(in_flight: int, entries: int) -> None:
    engine = Engine()
    appends, groups, took_s = run(engine, in_flight=in_flight, entries=entries)
    assert len(appends.latencies_us) == sum(groups) == entries
    for log, stored in engine.entries.items():
        assert [entry.op_id.index for entry in stored] == list(range(1, appends.last[log] + 1))
        assert {len(entry.body) for entry in stored} <= {100}
    assert took_s * 1e6 >= max(appends.latencies_us) > 0
    assert appends.problems == []


def test_as_many_as_asked_for_are_under_way_on_each_log() -> None:
    _, groups, _ = run(Engine(), in_flight=5, entries=1500)
    assert max(groups) == 5 * len(LOGS)


def test_what_the_answers_of_one_turn_set_free_is_one_reservation_for_each_log() -> None:
    engine = Engine()
    run(engine, in_flight=5, entries=1500)
    assert engine.answers == 1500 / 5


def test_logs_are_collected_as_they_grow_and_never_beyond_what_was_acknowledged() -> None:
    engine = Engine()
    run(engine, in_flight=5, entries=1500)
    expected = [number * COLLECT_ENTRIES - 5 for number in range(1, 1500 // len(LOGS) // COLLECT_ENTRIES)]
    assert engine.collected == dict.fromkeys(LOGS, expected), "behind the last answers nothing leaves"


def test_an_append_without_room_waits_and_is_not_lost() -> None:
    engine = Engine()
    appends, groups, _ = run(engine, in_flight=8, entries=400, queue_bytes_max=500)
    assert len(appends.latencies_us) == 400
    assert max(groups) < 8 * len(LOGS), "the writer takes one reservation beyond its bound, not those of all logs"
    assert sum(map(len, engine.entries.values())) == 400


def test_the_first_failure_ends_the_run_and_is_told() -> None:
    appends, _, _ = run(Engine(full_at=3), in_flight=2, entries=1000)
    assert len(appends.latencies_us) < 100
    assert "no space" in appends.problems[0]
