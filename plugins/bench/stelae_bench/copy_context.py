"""The context of the parts of ``stelae bench copy``: settings, the started nodes, the report."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from stelae.client.async_client import AsyncClient
from stelae_bench.copy_nodes import CopyNodes
from stelae_bench.copy_report import CopyReport

Measure: TypeAlias = Callable[[], Awaitable[None]]


class CopyPart(StrEnum):
    """A part of the benchmark, in the order in which they run."""

    SPEED = "speed"
    WRITES = "writes"
    RESUME = "resume"
    TABLETS = "tablets"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBenchSettings:
    """The settings of a run, from the command line.

    Attributes:
        size_bytes: bytes of the rows that are copied.
        tablets: number of empty tablets that are moved.
        rounds: number of rounds of speed and of writes.
        seconds: how long writes are measured without a copy, in each round.
        seed: of the rows, and of the order within each round.
        parts: the parts to measure.
        directory: a folder on the disk to measure; ``None``: the one of temporary files.
    """

    size_bytes: int
    tablets: int
    rounds: int
    seconds: float
    seed: int
    parts: frozenset[CopyPart]
    directory: Path | None


@dataclass(slots=True, kw_only=True)
class CopyBench:
    """One run on nodes that were started.

    Attributes:
        nodes: the master and the tablet servers.
        client: a client that is connected to them.
        settings: what to measure.
        report: gets the results.
        note: called with messages about the progress.
        rng: draws the orders.
    """

    nodes: CopyNodes
    client: AsyncClient
    settings: CopyBenchSettings
    report: CopyReport
    note: Callable[[str], None]
    rng: random.Random

    async def rounds(self, what: str, measures: Sequence[Measure]) -> None:
        """Run every measurement once in each round, in random order. The first problem ends the rounds."""
        for number in range(self.settings.rounds):
            self.note(f"{what}: round {number + 1} of {self.settings.rounds}")
            for place in sorted(range(len(measures)), key=lambda _: self.rng.random()):
                self.nodes.cluster.check()
                if self.report.ok:
                    await measures[place]()
