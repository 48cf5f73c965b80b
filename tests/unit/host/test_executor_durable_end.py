"""The executor reports as durable exactly what the log holds of the core's entries."""

from __future__ import annotations

import pytest

from stelae.host.log_writer import CommitGroup
from stelae.spi.consensus import Ready
from stelae.spi.consensus_events import Persisted, PersistFailed
from stelae.spi.errors import ClockError, Full, SyncFailed
from stelae.spi.members import TabletConfig
from stelae.spi.wal import Failed
from tests.unit.host.test_executor import LOG, Bench, append, new_entry, op, say


def test_a_clock_that_fails_behind_an_append_in_flight_cuts_nothing_that_still_becomes_durable() -> None:
    """The failure named the end that was durable so far. The append before it became durable after that: the core gave
    up an entry that this replica acknowledged, and the next append overlapped it."""
    bench = Bench(last=op(5))
    bench.run(Ready(id=1, append=append(new_entry(6)), after_persist=say("ack of 6")))
    bench.clock_error = ClockError("the ceiling cannot be raised")
    bench.run(Ready(id=2, append=append(new_entry(7)), after_persist=say("ack of 7")), Ready(id=3, at_once=say("free")))
    assert bench.events == [] and bench.failures == []
    bench.disk()
    assert bench.events == [Persisted(1), PersistFailed(2, 6)]
    assert bench.failures[0].durable == op(6) and bench.cache.end_index == 7
    assert "send ack of 6" in bench.log and "send ack of 7" not in bench.log and bench.executor.idle
    bench.clock_error = None
    bench.run(Ready(id=4, append=append(new_entry(7)), after_persist=say("ack of 7")))
    bench.disk()
    assert bench.log[-1] == "send ack of 7"


def test_a_clock_that_goes_on_before_the_append_in_flight_is_durable_fails_nothing() -> None:
    bench = Bench()
    bench.run(Ready(id=1, append=append(new_entry(1))))
    bench.clock_error = ClockError("the ceiling cannot be raised")
    bench.run(Ready(id=2, append=append(new_entry(2)), after_persist=say("ack")))
    bench.clock_error = None
    bench.disk()
    bench.disk()
    assert bench.events == [Persisted(1), Persisted(2)] and bench.failures == [] and bench.log[-1] == "send ack"


def test_an_append_in_flight_whose_sync_fails_decides_for_what_the_clock_holds_back() -> None:
    bench = Bench(last=op(5))
    bench.run(Ready(id=1, append=append(new_entry(6)), after_persist=say("ack")))
    bench.clock_error = ClockError("the ceiling cannot be raised")
    bench.run(Ready(id=2, append=append(new_entry(7)), after_persist=say("ack")))
    bench.disk(failed := Failed(SyncFailed("fsync"), op(5)))
    assert bench.events == [PersistFailed(1, 5)] and bench.failures == [failed] and bench.executor.idle
    assert not any(line.startswith("send") for line in bench.log)


def test_a_writer_that_refuses_behind_an_append_in_flight_is_asked_again_once_that_is_durable() -> None:
    bench = Bench(last=op(5))
    bench.run(Ready(id=1, append=append(new_entry(6)), after_persist=say("ack of 6")))
    bench.writer.close(lambda _result: None)
    bench.run(Ready(id=2, append=append(new_entry(7)), after_persist=say("ack of 7")))
    bench.disk()
    assert bench.events == [Persisted(1), PersistFailed(2, 6)] and bench.failures[0].durable == op(6)


def test_a_commit_that_came_with_a_refused_append_is_announced_all_the_same() -> None:
    """Otherwise nothing applies these entries until the commit index advances again."""
    bench = Bench(last=op(5))
    bench.clock_error = ClockError("the ceiling cannot be raised")
    bench.run(Ready(id=1, append=append(new_entry(6)), commit=5))
    assert bench.log == ["commit 5"] and bench.events == [PersistFailed(1, 5)]


@pytest.mark.parametrize("refused", ["clock", "failed already", "queue full"])
def test_a_commit_behind_a_refused_append_is_announced_when_an_earlier_append_fails(refused: str) -> None:
    """The core does not repeat it, so a follower of an idle tablet never applied the entry."""
    bench = Bench(last=op(5), queue_bytes_max=1 if refused == "queue full" else 1 << 20)
    bench.run(Ready(id=1, append=append(new_entry(6)), commit=6))
    failed = Failed(Full("no space", path=""), op(5))
    ended = None
    if refused == "failed already":  # The driver knows it, and its word is on the way to the loop.
        ended = bench.writer.complete(bench.writer.take_work(), {LOG: failed})
    bench.clock_error = ClockError("the ceiling cannot be raised") if refused == "clock" else None
    bench.run(Ready(id=2, append=append(new_entry(7)), commit=7))
    assert "commit 7" not in bench.log
    bench.clock_error = None
    if ended is None:
        bench.disk(failed)
    else:
        bench._post(ended)
    assert "commit 7" in bench.log and bench.executor.idle


def test_a_committed_config_waits_for_the_replacement_of_a_durable_suffix() -> None:
    """The index was durable, with the entry of an older term there. A crash left metadata with a config that the log
    does not hold, which looks like a log that lost its tail."""
    bench = Bench(last=op(12))
    config = TabletConfig(op_id=op(11, 2), members=())
    change = append(new_entry(10, 2), new_entry(11, 2), replace_from=10)
    bench.run(Ready(id=1, append=change, commit=11, committed_config=config))
    bench.run(Ready(id=2, append=append(new_entry(12, 2))))
    assert bench.saves == [] and bench.cache.settled(12) == 9
    bench.disk()
    assert len(bench.saves) == 1 and bench.cache.settled(11) == 11


def test_what_a_failed_replacement_left_on_the_disk_does_not_count_as_durable() -> None:
    bench = Bench(last=op(12))
    bench.run(Ready(id=1, append=append(new_entry(11, 2), replace_from=11), commit=11))
    bench.disk(Failed(Full("no space"), op(12)))
    assert bench.cache.settled(12) == 10
    bench.writer._logs[LOG].failed = None
    bench.run(Ready(id=2, append=append(new_entry(11, 2))))
    assert bench.cache.settled(12) == 10
    bench.disk()
    assert bench.cache.settled(11) == 11


@pytest.mark.parametrize("again", ["disk", "clock"])
def test_an_append_that_should_replace_what_a_failed_replacement_left_may_fail_too(again: str) -> None:
    """The index was durable, with an entry of an older term there. The core took its own entry for durable, and this
    replica acknowledged what it did not have."""
    bench = Bench(last=op(12))
    bench.run(Ready(id=1, append=append(new_entry(10, 2), replace_from=10)))
    bench.disk(Failed(Full("no space"), op(12)))
    bench.writer._logs[LOG].failed = None
    bench.clock_error = ClockError("the ceiling cannot be raised") if again == "clock" else None
    bench.run(Ready(id=2, append=append(new_entry(10, 2)), after_persist=say("ack")))
    if again == "disk":
        bench.disk(Failed(Full("no space"), op(12)))
    assert bench.events == [PersistFailed(1, 9), PersistFailed(2, 9)] and "send ack" not in bench.log
    assert bench.cache.end_index == 10 and bench.cache.settled(12) == 9
    bench.writer._logs[LOG].failed, bench.clock_error = None, None
    bench.run(Ready(id=3, append=append(new_entry(10, 2))))
    group = bench.writer.take_work()
    assert isinstance(group, CommitGroup) and group.appends[LOG].replace_from == 10
