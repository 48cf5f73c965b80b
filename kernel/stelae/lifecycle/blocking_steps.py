"""Runs sequences of blocking steps, which are written as generators.

A generator yields each blocking step, and gets the result at its ``yield``; an exception of the step is raised there.
Between two steps the generator runs on the event loop, so it may read and change replicas. It uses no threads and no
clock: the runner works for a node and for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

from stelae.host.log_writer import LogWriter
from stelae.host.ports import BlockingPool, Turns
from stelae.spi.wal import WalEngine

WAIT_US = 5_000
"""The interval between two tests of a condition."""


@dataclass(frozen=True, slots=True)
class OffLoop:
    """Run ``work`` in the pool for metadata, after earlier work of the same tablet."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class WithLog:
    """Run ``work`` with the log engine, between two groups of the log writer."""

    work: Callable[[WalEngine], Any]


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until a condition is true. It must be cheap; it is called on the event loop."""

    condition: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Ask:
    """Call ``begin`` on the event loop, and wait until it calls its argument, once, with a result or an exception."""

    begin: Callable[[Callable[[Any], None]], None]


BlockingStep: TypeAlias = OffLoop | WithLog | Until | Ask
_Result = TypeVar("_Result")
Steps: TypeAlias = Generator[BlockingStep, Any, _Result]


def _resumed(steps: Steps[_Result], result: Any) -> BlockingStep:
    """Give a generator the result of its step, or raise it there. Return the next one; ``StopIteration``: it ends."""
    return steps.throw(result) if isinstance(result, Exception) else steps.send(result)


def run_now(steps: Steps[_Result], wal: WalEngine) -> _Result:
    """Run a generator on the calling thread, before the loop runs. Return and raise what it does.

    It may block, and must not wait for anything: it yields only ``OffLoop`` and ``WithLog``."""
    result: Any = None
    while True:
        try:
            step = _resumed(steps, result)
        except StopIteration as end:
            found: _Result = end.value
            return found
        assert isinstance(step, OffLoop | WithLog), f"a start waits for nothing: {step}"
        try:
            result = step.work() if isinstance(step, OffLoop) else step.work(wal)
        except Exception as error:
            result = error


def in_pool(steps: Steps[_Result], pool: BlockingPool, key: str) -> Steps[_Result]:
    """Run the ``OffLoop`` steps of a generator in another pool than that of its runner, in order per ``key``.

    Return and raise what the generator does. For work that takes long within an operation of a pool that votes use."""
    result: Any = None
    while True:
        try:
            step = _resumed(steps, result)
        except StopIteration as end:
            found: _Result = end.value
            return found
        try:
            result = yield Ask(partial(pool.run, key, step.work)) if isinstance(step, OffLoop) else step
        except Exception as error:
            result = error


@dataclass(frozen=True, slots=True)
class StepRunner:
    """Runs generators of steps, on the event loop."""

    pool: BlockingPool
    writer: LogWriter
    turns: Turns

    def run(self, key: str, steps: Steps[_Result], done: Callable[[_Result | Exception], None]) -> None:
        """Run a generator. ``done`` is called once, with what it returned or raised.

        Work in the pool runs in order per ``key``."""

        def resume(result: Any) -> None:
            try:
                step = _resumed(steps, result)
            except StopIteration as end:
                done(end.value)
            except Exception as error:
                done(error)
            else:
                begin(step)

        def begin(step: BlockingStep) -> None:
            match step:
                case OffLoop():
                    self.pool.run(key, step.work, resume)
                case WithLog():
                    self.writer.submit_job(step.work, resume)
                case Ask():
                    step.begin(resume)
                case Until():
                    ask(step)

        def ask(step: Until) -> None:
            if step.condition():
                resume(None)
            else:
                self.turns.call_at(self.turns.now_us() + WAIT_US, lambda: ask(step))

        resume(None)
