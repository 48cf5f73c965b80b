"""A group over many tablets is synced side by side, within a bound, and never waits for help."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stelae.machine.files import RealFile, RealFiles
from stelae.machine.workers import WorkerPool
from stelae.sim.disk import PowerLost, Survival
from stelae.spi.errors import Overloaded
from stelae.spi.ids import ZERO, LogId, TabletId
from stelae.spi.services import Buffer
from stelae.spi.wal import Append, Durable, Failed
from stelae.testing.wal_harness import QueuedWorkers, VirtualHarness, fake_services
from stelae.testing.wal_model import Model, check_holds, entries
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_segmented.fan_out import ALONE_MAX, FanOut

LOGS = [LogId(TabletId(f"tablet-{number:02}"), 1) for number in range(12)]
PATIENCE_S = 30
"""How long threads wait for each other before a test fails; none waits that long otherwise."""


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    workers = WorkerPool(8, "test", lambda call: call())
    yield workers
    workers.close()


def a_group(index: int, names: Sequence[LogId] = LOGS) -> dict[LogId, Append]:
    return {name: Append(entries=entries(index, 2)) for name in names}


# -- the bound -------------------------------------------------------------------------------------


class Meeting:
    """Counts who is inside, and lets nobody out until ``expected`` have been inside at once."""

    def __init__(self, expected: int) -> None:
        self._condition = threading.Condition()
        self._expected = expected
        self._inside = 0
        self.most = 0

    def attend(self) -> None:
        with self._condition:
            self._inside += 1
            self.most = max(self.most, self._inside)
            self._condition.notify_all()
            met = self._condition.wait_for(lambda: self.most >= self._expected, PATIENCE_S)
            self._inside -= 1
        assert met, f"{self._expected} should have met, but only {self.most} did"


@pytest.mark.parametrize("threads", [2, 4, 8])
def test_so_many_pieces_are_under_way_at_once_and_no_more(pool: WorkerPool, threads: int) -> None:
    fan_out, meeting = FanOut(pool, threads), Meeting(threads)
    for _ in range(3):
        meeting.most = 0
        fan_out.run([meeting.attend] * 40)
        assert meeting.most == threads


def test_one_thread_does_everything_in_order_and_asks_nobody() -> None:
    workers = QueuedWorkers(at_once=False)
    done: list[int] = []
    FanOut(workers, 1).run([lambda number=number: done.append(number) for number in range(20)])  # type: ignore[misc]
    assert done == list(range(20))
    assert workers.run() == 0


def test_a_few_pieces_are_done_without_help() -> None:
    workers = QueuedWorkers(at_once=False)
    done: list[int] = []
    FanOut(workers, 8).run([lambda: done.append(1)] * ALONE_MAX)
    assert len(done) == ALONE_MAX
    assert workers.run() == 0


def test_help_that_comes_too_late_finds_nothing_to_do_and_does_not_pile_up() -> None:
    workers = QueuedWorkers(at_once=False)
    fan_out = FanOut(workers, 8)
    done: list[int] = []
    for _ in range(100):
        fan_out.run([lambda: done.append(1)] * 20)
    assert len(done) == 2000
    assert workers.run() == 7, "as many as may help at once, however many groups went by"
    fan_out.run([lambda: done.append(1)] * 20)
    assert workers.run() == 7
    assert len(done) == 2020


def test_workers_that_take_nothing_cost_nothing_but_time_and_are_asked_again() -> None:
    asked: list[Callable[[], Any]] = []

    class Busy:
        def submit(self, work: Callable[[], Any], done: Callable[[Any], None] | None = None) -> None:
            asked.append(work)
            assert done is not None
            done(Overloaded("too much to do"))

    fan_out = FanOut(Busy(), 4)
    done: list[int] = []
    for turn in range(1, 4):
        fan_out.run([lambda: done.append(1)] * 20)
        assert len(done) == 20 * turn
        assert len(asked) == 3 * turn


def test_what_a_piece_raises_on_any_thread_is_raised_to_the_caller_when_none_is_under_way(pool: WorkerPool) -> None:
    fan_out, meeting = FanOut(pool, 4), Meeting(4)
    inside = threading.local()
    inside.caller = True

    def fail_beside() -> None:
        meeting.attend()
        if not getattr(inside, "caller", False):
            raise PowerLost("on a worker")

    with pytest.raises(PowerLost):
        fan_out.run([fail_beside] * 8)
    done: list[int] = []
    fan_out.run([lambda: done.append(1)] * 9)
    assert len(done) == 9, "it works on after that"


# -- the engine ------------------------------------------------------------------------------------


class MeetingFiles(RealFiles):
    """A real disk on which synced writes of segments attend a meeting."""

    def __init__(self, meeting: Meeting) -> None:
        self.meeting = meeting
        self.armed = False

    def open(self, path: str, *, writable: bool = False) -> RealFile:
        file = super().open(path, writable=writable)
        return _Attending(file, self) if writable and path.endswith(".seg") else file


class _Attending(RealFile):
    __slots__ = ("_files", "_inner")

    def __init__(self, inner: RealFile, files: MeetingFiles) -> None:
        super().__init__(-1, inner.path)
        self._inner = inner
        self._files = files

    def _checked(self) -> int:
        return self._inner._checked()

    def pwritev(self, buffers: Sequence[Buffer], offset: int, *, dsync: bool = False) -> int:
        if self._files.armed:
            self._files.meeting.attend()
        return super().pwritev(buffers, offset, dsync=dsync)

    def close(self) -> None:
        self._inner.close()

    def __del__(self) -> None:
        pass


@pytest.mark.parametrize("threads", [1, 5])
def test_a_group_over_many_logs_is_synced_by_so_many_threads_as_configured(
    pool: WorkerPool, tmp_path: Path, threads: int
) -> None:
    files = MeetingFiles(Meeting(threads))
    config = SegmentedConfig(sync_threads_max=threads)
    engine = SegmentedWal.open(str(tmp_path / "wals"), config, fake_services(files, pool))  # type: ignore[arg-type]
    for name in LOGS:
        engine.create(name, ZERO)
    engine.commit(a_group(1), sync=True)
    files.armed = True
    outcomes = engine.commit(a_group(3), sync=True)
    files.armed = False
    assert list(outcomes) == LOGS, "in the order of the group, whoever was first"
    assert files.meeting.most == threads
    engine.close()
    engine = SegmentedWal.open(str(tmp_path / "wals"), config, fake_services(RealFiles()))
    for name in LOGS:
        check_holds(engine, Model(ZERO, list(entries(1, 4))), name)
    engine.close()


def started(at_once: bool) -> tuple[VirtualHarness, SegmentedWal]:
    harness = VirtualHarness(SegmentedWal, SegmentedConfig(segment_bytes_first=4096))
    harness.workers.at_once = at_once
    engine = harness.open()
    assert isinstance(engine, SegmentedWal)
    for name in LOGS:
        engine.create(name, ZERO)
    return harness, engine


@pytest.mark.parametrize("at_once", [True, False], ids=["workers do it", "the log's thread does it"])
def test_a_log_that_fails_in_a_group_fails_alone_whoever_did_it(at_once: bool) -> None:
    harness, engine = started(at_once)
    engine.commit(a_group(1), sync=True)
    harness.disk.faults.fail_syncs(f"{LOGS[5].tablet_id}/", 1)
    outcomes = engine.commit(a_group(3), sync=True)
    assert [name for name, outcome in outcomes.items() if not isinstance(outcome, Durable)] == [LOGS[5]]
    harness.crash(engine, Survival.LOST)
    engine2 = harness.open()
    for name in LOGS[:5] + LOGS[6:]:
        check_holds(engine2, Model(ZERO, list(entries(1, 4))), name)
    engine2.close()


def test_what_was_not_synced_is_synced_side_by_side_and_failures_are_named() -> None:
    harness, engine = started(True)
    engine.commit(a_group(1), sync=True)
    assert all(isinstance(outcome, Durable) for outcome in engine.commit(a_group(3), sync=False).values())
    harness.disk.faults.fail_syncs(f"{LOGS[2].tablet_id}/", 1)
    failures = engine.commit({}, sync=True)
    assert list(failures) == [LOGS[2]]
    assert isinstance(failures[LOGS[2]], Failed)
    harness.crash(engine, Survival.LOST)
    engine2 = harness.open()
    for name in LOGS[:2] + LOGS[3:]:
        check_holds(engine2, Model(ZERO, list(entries(1, 4))), name)
    engine2.close()


@pytest.mark.parametrize("at_once", [True, False])
def test_power_lost_in_the_middle_of_a_group_takes_back_only_what_was_not_acknowledged(at_once: bool) -> None:
    harness, engine = started(at_once)
    engine.commit(a_group(1), sync=True)
    for operations in range(0, 24, 5):
        twin = harness.fork(operations)
        engine = twin.open()  # type: ignore[assignment]
        twin.disk.faults.lose_power_after(operations=operations)
        with pytest.raises(PowerLost):
            engine.commit(a_group(3), sync=True)
        twin.disk.faults.heal()
        twin.crash(engine)
        engine = twin.open()  # type: ignore[assignment]
        for name in LOGS:
            assert engine.read(name, 1, 3, 1 << 20) == list(entries(1, 2))
            assert engine.logs()[name].damage is None
        engine.close()
