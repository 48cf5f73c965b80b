"""The log writer: order, groups, push-back, and how a failure reaches everybody."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest

from stelae.host.log_writer import CommitGroup, Completion, LogWriter
from stelae.spi.errors import CallerError, Corrupt, Full, Overloaded, SyncFailed, Unavailable
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Durable, Failed, Outcome

A = LogId(TabletId("a"), 1)
B = LogId(TabletId("b"), 1)


def entries(first: int, count: int = 1, term: int = 1, size: int = 10) -> tuple[Entry, ...]:
    return tuple(Entry(OpId(term, first + n), EntryKind.WRITE, first + n, b"x" * size) for n in range(count))


class Driver:
    """Plays the WAL thread by hand, and the loop that completions are posted to."""

    def __init__(self, queue_bytes_max: int = 1 << 20, group_bytes_max: int = 1 << 20) -> None:
        self.wakes = 0
        self.outcomes: list[tuple[str, Outcome]] = []
        self.writer = LogWriter(
            lock=nullcontext(),
            wake=self._wake,
            post=self._post,
            queue_bytes_max=queue_bytes_max,
            group_bytes_max=group_bytes_max,
        )
        self.writer.open_log(A, OpId(0, 0))
        self.writer.open_log(B, OpId(0, 0))

    def _wake(self) -> None:
        self.wakes += 1

    def _post(self, completions: list[Completion]) -> None:
        for callback, argument in completions:
            callback(argument)

    def append(self, log: LogId, label: str, batch: tuple[Entry, ...], **more: int) -> None:
        slot = self.writer.reserve(log, sum(entry.size_bytes for entry in batch))
        self.writer.append_async(slot, batch, done=lambda outcome: self.outcomes.append((label, outcome)), **more)

    def take(self) -> CommitGroup:
        work = self.writer.take_work()
        assert isinstance(work, CommitGroup)
        return work

    def succeed(self, group: CommitGroup) -> None:
        outcomes: dict[LogId, Outcome] = {
            log: Durable(append.entries[-1].op_id) for log, append in group.appends.items()
        }
        self._post(self.writer.complete(group, outcomes))


def test_one_group_takes_what_is_ready_in_every_log() -> None:
    driver = Driver()
    driver.append(A, "a1", entries(1))
    driver.append(B, "b1", entries(1))
    driver.append(A, "a2", entries(2, 2))
    group = driver.take()
    assert [e.op_id.index for e in group.appends[A].entries] == [1, 2, 3]
    assert [e.op_id.index for e in group.appends[B].entries] == [1]
    driver.succeed(group)
    assert driver.outcomes == [("a1", Durable(OpId(1, 1))), ("a2", Durable(OpId(1, 3))), ("b1", Durable(OpId(1, 1)))]
    assert driver.writer.queued_bytes == 0


def test_commit_order_is_reservation_order_even_when_filled_backwards() -> None:
    driver = Driver()
    first = driver.writer.reserve(A, 74)
    second = driver.writer.reserve(A, 74)
    seen: list[str] = []
    driver.writer.append_async(second, entries(2), done=lambda _o: seen.append("second"))
    assert driver.writer.take_work() is None, "an unfilled slot holds back those behind it"
    driver.append(B, "b1", entries(1))
    assert set(driver.take().appends) == {B}, "and no other log"
    driver.writer.append_async(first, entries(1), done=lambda _o: seen.append("first"))
    group = driver.take()
    assert [e.op_id.index for e in group.appends[A].entries] == [1, 2]
    driver.succeed(group)
    assert seen == ["first", "second"]


def test_a_log_that_is_being_committed_is_not_taken_twice() -> None:
    driver = Driver()
    driver.append(A, "a1", entries(1))
    group = driver.take()
    driver.append(A, "a2", entries(2))
    assert driver.writer.take_work() is None
    driver.succeed(group)
    assert [e.op_id.index for e in driver.take().appends[A].entries] == [2]


def test_the_driver_is_woken_once_until_it_has_found_nothing_to_do() -> None:
    """A wake for each append of a turn had the log's thread ask as often in vain, on the loop's time."""
    driver = Driver()
    driver.append(A, "a1", entries(1))
    driver.append(A, "a2", entries(2))
    driver.append(B, "b1", entries(1))
    driver.writer.submit_job(lambda _engine: None, lambda _result: None)
    assert driver.wakes == 1
    assert driver.writer.take_work() is not None
    driver.append(B, "b2", entries(2))
    group = driver.take()
    assert driver.wakes == 1, "it goes on asking"
    driver.succeed(group)
    assert driver.writer.take_work() is None
    driver.append(A, "a3", entries(3))
    driver.append(B, "b3", entries(3))
    assert driver.wakes == 2, "it waits again, and is woken for the first of them"


@pytest.mark.parametrize("kind", ["append", "job"])
def test_no_wake_is_lost_between_the_last_question_and_what_comes_next(kind: str) -> None:
    driver = Driver()
    for round_number in range(1, 4):
        if kind == "append":
            driver.append(A, f"a{round_number}", entries(round_number))
        else:
            driver.writer.submit_job(lambda _engine: None, lambda _result: None)
        assert driver.wakes == round_number
        while (work := driver.writer.take_work()) is not None:
            if isinstance(work, CommitGroup):
                driver.succeed(work)


def test_an_append_waits_for_one_job_although_many_are_queued() -> None:
    """A node that collected the logs of a thousand tablets took no append until the last one was collected."""
    driver = Driver()
    done: list[object] = []
    for number in range(100):
        driver.writer.submit_job(lambda _engine, number=number: number, done.append)  # type: ignore[misc]
    jobs_before = []
    for index in (1, 2, 3):
        driver.append(A, f"a{index}", entries(index))
        count = len(done)
        while not isinstance(work := driver.writer.take_work(), CommitGroup):
            assert work is not None
            driver._post(driver.writer.perform(work, None))  # type: ignore[arg-type]
        driver.succeed(work)
        jobs_before.append(len(done) - count)
    assert jobs_before == [1, 1, 1]
    while (work := driver.writer.take_work()) is not None:
        driver._post(driver.writer.perform(work, None))  # type: ignore[arg-type]
    assert done == list(range(100))


def test_a_replacement_begins_a_group_of_its_own() -> None:
    driver = Driver()
    driver.append(A, "old", entries(1, 3))
    driver.append(A, "new", entries(2, 1, term=2), replace_from=2)
    driver.append(A, "more", entries(3, 1, term=2))
    group = driver.take()
    assert group.appends[A].replace_from is None
    driver.succeed(group)
    group = driver.take()
    assert group.appends[A].replace_from == 2
    assert [e.op_id for e in group.appends[A].entries] == [OpId(2, 2), OpId(2, 3)]


def test_the_highest_commit_hint_of_a_group_rides_along() -> None:
    driver = Driver()
    driver.append(A, "a1", entries(1), commit_hint=3)
    driver.append(A, "a2", entries(2), commit_hint=7)
    assert driver.take().appends[A].commit_hint == 7


def test_groups_are_bounded_in_bytes_but_one_large_append_goes_alone() -> None:
    driver = Driver(group_bytes_max=200)
    driver.append(A, "large", entries(1, 1, size=1000))
    driver.append(A, "small", entries(2))
    assert [e.op_id.index for e in driver.take().appends[A].entries] == [1]


def test_the_queue_pushes_back_and_says_when_there_is_room() -> None:
    driver = Driver(queue_bytes_max=100)
    driver.append(A, "a1", entries(1, 1, size=100))
    with pytest.raises(Overloaded, match=r"164 bytes are queued .* limit is 100"):
        driver.writer.reserve(A, 10)
    room: list[bool] = []
    driver.writer.when_room(lambda _: room.append(True))
    driver.succeed(driver.take())
    assert room == [True]
    driver.writer.reserve(A, 10)


def test_room_that_came_before_anybody_asked_is_told_at_once() -> None:
    driver = Driver(queue_bytes_max=100)
    driver.append(A, "a1", entries(1, 1, size=100))
    with pytest.raises(Overloaded):
        driver.writer.reserve(A, 10)
    driver.succeed(driver.take())
    room: list[bool] = []
    driver.writer.when_room(lambda _: room.append(True))
    assert room == [True], "the group that made room is over; no other may come"


def test_a_missing_file_fails_the_job_that_met_it_and_not_the_thread() -> None:
    driver = Driver()
    results: list[object] = []

    def work(_engine: object) -> None:
        raise FileNotFoundError("base")

    driver.writer.submit_job(work, results.append)
    job = driver.writer.take_work()
    assert job is not None
    driver._post(driver.writer.perform(job, None))  # type: ignore[arg-type]
    assert isinstance(results[0], FileNotFoundError)


@pytest.mark.parametrize("error", [Full("no space"), SyncFailed("fsync failed")])
def test_a_failure_reaches_every_slot_of_its_log_and_no_other_log(error: Full | SyncFailed) -> None:
    driver = Driver()
    driver.append(A, "a1", entries(1))
    driver.append(A, "a2", entries(2))
    driver.append(B, "b1", entries(1))
    group = driver.take()
    driver.append(A, "a3", entries(3))
    unfilled = driver.writer.reserve(A, 74)
    failed = Failed(error, OpId(0, 0))
    driver._post(driver.writer.complete(group, {A: failed, B: Durable(OpId(1, 1))}))
    assert driver.outcomes == [("a1", failed), ("a2", failed), ("a3", failed), ("b1", Durable(OpId(1, 1)))]
    late: list[Outcome] = []
    driver.writer.append_async(unfilled, entries(4), done=late.append)
    assert late == [failed], "a slot reserved before the failure hears of it too, once"
    with pytest.raises(type(error)):
        driver.writer.reserve(A, 10)
    driver.append(B, "b2", entries(2))
    assert set(driver.take().appends) == {B}
    assert driver.writer.queued_bytes == 74


def test_what_was_acknowledged_stays_known_when_damage_cuts_the_log() -> None:
    """The tombstone of such a replica voted as if it had never acknowledged what the damage cut off."""
    driver = Driver()
    driver.append(A, "a1", entries(1, 2))
    driver.succeed(driver.take())
    assert driver.writer.acknowledged(A) == OpId(1, 2) == driver.writer.durable(A)
    driver.append(A, "a2", entries(3))
    failed = Failed(Corrupt("a bad page", path="/wals/1.seg"), OpId(1, 1))
    driver._post(driver.writer.complete(driver.take(), {A: failed}))
    assert driver.writer.durable(A) == OpId(1, 1) and driver.writer.acknowledged(A) == OpId(1, 2)
    driver.writer.close_log(A)
    assert driver.writer.acknowledged(A) == OpId(0, 0)


def test_repair_reopens_a_log_at_its_durable_op_id() -> None:
    driver = Driver()
    driver.append(A, "a1", entries(1))
    driver._post(driver.writer.complete(driver.take(), {A: Failed(Full("no space"), OpId(0, 0))}))
    results: list[object] = []
    driver.writer.repair(A, results.append)

    class Engine:
        def repair(self, log: LogId) -> OpId:
            assert log == A
            return OpId(1, 1)

    work = driver.writer.take_work()
    assert work is not None
    driver._post(driver.writer.perform(work, Engine()))  # type: ignore[arg-type]
    assert results == [OpId(1, 1)]
    assert driver.writer.durable(A) == OpId(1, 1)
    driver.writer.reserve(A, 10)


def test_a_log_that_is_closed_takes_no_more_and_everybody_who_waits_for_it_is_told_once() -> None:
    driver = Driver()
    assert not driver.writer.has_queued(A)
    driver.append(A, "under way", entries(1))
    assert driver.writer.has_queued(A)
    group = driver.take()
    assert driver.writer.has_queued(A)
    driver.succeed(group)
    assert not driver.writer.has_queued(A) and not driver.writer.has_queued(LogId(TabletId("never"), 1))
    driver.outcomes.clear()
    driver.append(A, "under way", entries(1))
    group = driver.take()
    driver.append(A, "behind it", entries(2))
    unfilled = driver.writer.reserve(A, 74)
    driver.append(B, "of another log", entries(1))
    driver.writer.close_log(A)
    with pytest.raises(CallerError, match="not open"):
        driver.writer.reserve(A, 10)
    assert driver.writer.durable(A) == OpId(0, 0)
    driver.succeed(group)
    group = driver.take()
    assert set(group.appends) == {A, B}
    dropped = Failed(CallerError("the log does not exist"), OpId(0, 0))
    driver._post(driver.writer.complete(group, {A: dropped, B: Durable(OpId(1, 1))}))
    driver.writer.append_async(unfilled, entries(3), done=lambda outcome: driver.outcomes.append(("late", outcome)))
    assert sorted(driver.outcomes, key=lambda told: told[0]) == [
        ("behind it", dropped),
        ("late", dropped),
        ("of another log", Durable(OpId(1, 1))),
        ("under way", Durable(OpId(1, 1))),
    ]
    assert driver.writer.take_work() is None
    assert driver.writer.queued_bytes == 0


def test_logs_that_come_and_go_leave_nothing_behind() -> None:
    driver = Driver()
    for generation in range(2, 50):
        log = LogId(TabletId("a"), generation)
        driver.writer.open_log(log, OpId(0, 0))
        driver.append(log, "one", entries(1))
        driver.succeed(driver.take())
        driver.writer.close_log(log)
    driver.writer.close_log(LogId(TabletId("never"), 1))
    assert set(driver.writer._logs) == {A, B} and not driver.writer._ready


def test_closing_waits_for_every_filled_append_and_takes_no_more() -> None:
    driver = Driver()
    driver.append(A, "a1", entries(1))
    closed: list[object] = []
    driver.writer.close(closed.append)
    with pytest.raises(Unavailable):
        driver.writer.reserve(A, 10)
    driver.succeed(driver.take())
    assert [label for label, _ in driver.outcomes] == ["a1"] and not closed
    work = driver.writer.take_work()
    assert work is not None
    driver._post(driver.writer.perform(work, None))  # type: ignore[arg-type]
    assert closed == [None]


def test_an_unknown_log_is_refused() -> None:
    with pytest.raises(CallerError, match="not open"):
        Driver().writer.reserve(LogId(TabletId("c"), 1), 1)


def test_appends_from_the_loop_race_a_real_thread_and_none_is_lost_or_doubled() -> None:
    wake = threading.Semaphore(0)
    posted: list[Completion] = []
    writer = LogWriter(
        lock=threading.Lock(), wake=wake.release, post=posted.extend, queue_bytes_max=1 << 30, group_bytes_max=4096
    )
    logs = [LogId(TabletId(f"t{n}"), 1) for n in range(3)]
    for log in logs:
        writer.open_log(log, OpId(0, 0))
    written: dict[LogId, list[int]] = {log: [] for log in logs}

    class Engine:
        def commit(self, appends: dict[LogId, object], sync: bool) -> dict[LogId, Outcome]:
            for log, append in appends.items():
                written[log].extend(e.op_id.index for e in append.entries)  # type: ignore[attr-defined]
            return {log: Durable(OpId(1, written[log][-1])) for log in appends}

    def run() -> None:
        while True:
            wake.acquire()
            while (work := writer.take_work()) is not None:
                writer.post(writer.perform(work, Engine()))  # type: ignore[arg-type]
                if not isinstance(work, CommitGroup):
                    return

    thread = threading.Thread(target=run)
    thread.start()
    done: list[tuple[LogId, int]] = []
    for index in range(1, 501):
        for log in logs:
            slot = writer.reserve(log, 74)
            writer.append_async(slot, entries(index), done=lambda _o, log=log, index=index: done.append((log, index)))
    writer.close(lambda _r: None)
    thread.join(20)
    assert not thread.is_alive()
    for callback, argument in posted:
        callback(argument)
    for log in logs:
        assert written[log] == list(range(1, 501))
        assert [index for found, index in done if found == log] == list(range(1, 501))
