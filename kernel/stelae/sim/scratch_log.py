"""A second, local log on each node, which tests replacement and collection of entries.

The replicated log of a tablet is rarely replaced far back, and rarely collected. The scratch log is
replaced and collected all the time, through the same log writer and engine and in the same groups. So
every crash also tests replaced suffixes, moved bases and recycled space."""

from __future__ import annotations

import random
from typing import Final

from stelae.host.log_writer import LogWriter
from stelae.sim.coverage import Coverage
from stelae.sim.draw import between, chance, skewed
from stelae.sim.process import Process
from stelae.spi.errors import StelaeError
from stelae.spi.ids import LogId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.wal import Failed, Outcome

SCRATCH_LOG: Final = LogId(TabletId("scribe"), 1)
"""The name stays: names of files decide what the known seeds draw."""

PAUSE_US = (20_000, 500_000)
REPAIR_US = 300_000
ENTRIES_MAX = 4
BODY_BYTES_MAX = 600
IN_FLIGHT_MAX = 3


class ScratchLogWriter:
    """Appends, replaces and collects at random while its process runs.

    Args:
        last: op id of the last entry that the engine has recovered.
        floor: highest index up to which collection was ever allowed. Entries at or below it are never replaced.
    """

    def __init__(
        self, process: Process, writer: LogWriter, rng: random.Random, coverage: Coverage, last: OpId, floor: int
    ) -> None:
        self._process = process
        self._writer = writer
        self._rng = rng
        self._coverage = coverage
        self._floor = floor
        self._last = last
        self._terms = last.term + 1
        self._in_flight = 0
        self._broken = False
        self.stopping = False

    def start(self) -> None:
        """Begin to act at random times until ``stopping``."""
        self._process.schedule(skewed(self._rng, *PAUSE_US), "scratch_log", self._act)

    def _act(self) -> None:
        if self.stopping:
            return
        if not self._broken and self._in_flight < IN_FLIGHT_MAX:
            share = self._rng.random()
            if share < 0.15 and self._in_flight == 0:
                self._collect()
            else:
                self._append(replace=share < 0.4)
        self.start()

    def _append(self, *, replace: bool) -> None:
        first, replace_from = self._last.index + 1, None
        if replace and self._last.index > self._floor:
            first = replace_from = between(self._rng, self._floor + 1, self._last.index)
            self._coverage.hit("scratch_log.replaced")
        if replace_from is not None or chance(self._rng, 0.1):
            self._terms += 1
        entries = tuple(
            self._entry(OpId(self._terms, first + offset)) for offset in range(between(self._rng, 1, ENTRIES_MAX))
        )
        size_bytes = sum(entry.size_bytes for entry in entries)
        try:
            slot = self._writer.reserve(SCRATCH_LOG, size_bytes)
        except StelaeError:
            self._coverage.hit("scratch_log.refused")
            return
        self._last = entries[-1].op_id
        self._in_flight += 1
        self._writer.append_async(slot, entries, replace_from=replace_from, done=self._appended)

    def _entry(self, op_id: OpId) -> Entry:
        body = bytes(self._rng.getrandbits(8) for _ in range(8))
        body *= skewed(self._rng, 0, BODY_BYTES_MAX // 8)
        return Entry(op_id, EntryKind.WRITE, op_id.index + 1, body)

    def _appended(self, outcome: Outcome) -> None:
        self._in_flight -= 1
        if isinstance(outcome, Failed) and not self._broken:
            self._broken = True
            self._coverage.hit("scratch_log.failed")
            self._process.schedule(REPAIR_US, "scratch_log.repair", self._repair)

    def _repair(self) -> None:
        def repaired(result: object) -> None:
            if isinstance(result, OpId):
                self._broken = False
                self._last = result
                self._terms = max(self._terms, result.term) + 1
            else:
                self._process.schedule(REPAIR_US, "scratch_log.repair", self._repair)

        self._writer.repair(SCRATCH_LOG, repaired)

    def _collect(self) -> None:
        """Collect up to a drawn index. Entries at or below it are not replaced from now on."""
        if self._last.index <= self._floor:
            return
        upto = between(self._rng, self._floor + 1, self._last.index)
        self._floor = upto
        self._coverage.hit("scratch_log.collected")
        self._writer.submit_job(lambda engine: engine.collect(SCRATCH_LOG, upto), lambda _: None)
