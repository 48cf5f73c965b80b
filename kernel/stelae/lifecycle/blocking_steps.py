"""Protocols that block, written from top to bottom, carried out off the event loop.

A protocol is a generator. It yields what has to be done elsewhere and gets the result back; what was raised there is
raised at its ``yield``. Between two steps it runs on the event loop, alone, so it may look at replicas and change
them. It knows no thread and no clock: the runner here serves a node and the simulator alike."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from stelae.host.log_writer import LogWriter
from stelae.host.ports import BlockingPool, Turns
from stelae.spi.wal import WalEngine

WAIT_US = 5_000
"""How often it is asked whether a condition holds."""


@dataclass(frozen=True, slots=True)
class OffLoop:
    """Run ``work`` in the pool for metadata, after earlier work of the same tablet."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class WithLog:
    """Run ``work`` where the log engine is driven, between two groups."""

    work: Callable[[WalEngine], Any]


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until a condition holds; it is cheap, and asked on the event loop."""

    condition: Callable[[], bool]


Step: TypeAlias = OffLoop | WithLog | Until
_Result = TypeVar("_Result")
Steps: TypeAlias = Generator[Step, Any, _Result]


@dataclass(frozen=True, slots=True)
class StepRunner:
    """Carries protocols out, on the event loop."""

    pool: BlockingPool
    writer: LogWriter
    turns: Turns

    def run(self, key: str, steps: Steps[_Result], done: Callable[[_Result | Exception], None]) -> None:
        """Carry a protocol out; ``done`` once, with what it returned or raised. ``key`` orders its work in the pool."""

        def resume(result: Any) -> None:
            try:
                step = steps.throw(result) if isinstance(result, Exception) else steps.send(result)
            except StopIteration as end:
                done(end.value)
            except Exception as error:
                done(error)
            else:
                begin(step)

        def begin(step: Step) -> None:
            match step:
                case OffLoop():
                    self.pool.run(key, step.work, resume)
                case WithLog():
                    self.writer.submit_job(step.work, resume)
                case Until():
                    ask(step)

        def ask(step: Until) -> None:
            if step.condition():
                resume(None)
            else:
                self.turns.call_at(self.turns.now_us() + WAIT_US, lambda: ask(step))

        resume(None)
