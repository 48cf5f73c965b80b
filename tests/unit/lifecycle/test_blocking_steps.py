"""Protocols in steps: what is run where, and what is raised where it is awaited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.lifecycle.blocking_steps import Ask, OffLoop, StepRunner, Steps, Until, WithLog, in_pool, run_now
from stelae.spi.errors import Full


class World:
    """Pool, log and loop, each of which notes what it ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.timers: list[Callable[[], None]] = []
        self.results: list[Any] = []
        writer, turns = MagicMock(), MagicMock()
        writer.submit_job.side_effect = lambda work, done: done(self._do("log", lambda: work("engine")))
        turns.call_at.side_effect = lambda _when, call: self.timers.append(call)
        turns.now_us.return_value = 0
        self.runner = StepRunner(self, writer, turns)

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(self._do(f"pool {key}", work))

    def _do(self, where: str, work: Callable[[], Any]) -> Any:
        self.ran.append(where)
        try:
            return work()
        except Exception as error:
            return error

    def start(self, steps: Steps[Any]) -> None:
        self.runner.run("k", steps, self.results.append)


@pytest.fixture
def world() -> World:
    return World()


def test_each_step_runs_where_it_belongs_and_its_result_comes_back(world: World) -> None:
    def steps() -> Steps[str]:
        first = yield OffLoop(lambda: "a")
        second = yield WithLog(lambda engine: f"{first} {engine}")
        return f"{second} b"

    world.start(steps())
    assert world.ran == ["pool k", "log"] and world.results == ["a engine b"]


def test_a_condition_is_asked_until_it_holds(world: World) -> None:
    holds: list[bool] = []

    def steps() -> Steps[str]:
        yield Until(lambda: bool(holds))
        return "done"

    world.start(steps())
    world.timers.pop()()
    assert world.results == []
    holds.append(True)
    world.timers.pop()()
    assert world.results == ["done"] and not world.timers


def test_what_is_raised_elsewhere_is_raised_at_the_step_and_may_be_caught(world: World) -> None:
    def full() -> None:
        raise Full("no space")

    def steps() -> Steps[str]:
        try:
            yield OffLoop(full)
        except Full:
            return "caught"
        return "missed"

    world.start(steps())
    assert world.results == ["caught"]


def test_what_nobody_catches_is_the_result(world: World) -> None:
    def fail() -> None:
        raise Full("no space")

    def steps() -> Steps[None]:
        yield WithLog(lambda _engine: fail())

    world.start(steps())
    (error,) = world.results
    assert isinstance(error, Full)


def test_a_protocol_without_steps_ends_at_once(world: World) -> None:
    def steps() -> Steps[int]:
        return 7
        yield

    world.start(steps())
    assert world.results == [7] and world.ran == []


def test_an_answer_that_comes_later_or_is_an_error_comes_back(world: World) -> None:
    asked: list[Callable[[Any], None]] = []

    def steps() -> Steps[str]:
        try:
            yield Ask(lambda done: done(Full("no space")))
        except Full:
            return str((yield Ask(asked.append)))
        return "no error was raised"

    world.start(steps())
    assert world.results == []
    asked[0]("late")
    assert world.results == ["late"]


def test_at_a_start_steps_run_on_the_calling_thread_and_their_errors_reach_the_generator() -> None:
    def steps() -> Steps[list[object]]:
        found: list[object] = [(yield OffLoop(lambda: 1)), (yield WithLog(lambda wal: wal))]
        with pytest.raises(ZeroDivisionError):
            yield OffLoop(lambda: 1 / 0)
        return found

    wal: Any = "the log engine"
    assert run_now(steps(), wal) == [1, wal]


def test_at_a_start_an_error_that_the_generator_does_not_handle_is_raised() -> None:
    def steps() -> Steps[None]:
        yield OffLoop(lambda: 1 / 0)

    wal: Any = None
    with pytest.raises(ZeroDivisionError):
        run_now(steps(), wal)


def test_the_blocking_steps_of_a_part_run_in_another_pool_and_raise_where_they_are_awaited(world: World) -> None:
    other = World()

    def part() -> Steps[str]:
        with pytest.raises(Full):
            yield OffLoop(_raise_full)
        with pytest.raises(Full):
            yield WithLog(lambda _engine: _raise_full())
        return (yield OffLoop(lambda: "done"))  # type: ignore[no-any-return]

    def steps() -> Steps[str]:
        result = yield from in_pool(part(), other, "k")
        yield OffLoop(lambda: None)
        return result

    world.start(steps())
    assert world.results == ["done"]
    assert other.ran == ["pool k", "pool k"] and world.ran == ["log", "pool k"]


def _raise_full() -> None:
    raise Full("no space")
