"""``[log] fast`` may change at every start: the plain and the fast engine open what the other one left.

After a clean close, after a kill, after a loss of power, and after a power loss in the middle of a commit."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from stelae.sim.disk import PowerLost, Survival
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, WalEngine
from stelae.testing.begun_commits import with_begun_commits
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries, intact
from stelae_wal_segmented import SegmentedConfig, SegmentedWal
from stelae_wal_segmented.format import decode_segment_header
from stelae_wal_segmented.writer import SegmentWriter
from stelae_wal_shared import SharedConfig, SharedWal

ENGINES = {
    "segmented": (
        SegmentedWal,
        SegmentedConfig(segment_bytes_first=8192, segment_bytes_max=8192, prewrite_bytes_min=8192),
    ),
    "shared": (SharedWal, SharedConfig(segment_bytes_first=20480, segment_bytes_max=20480, prewrite_bytes_min=20480)),
}
LIVES = 12


class Node:
    """One node's log through many lives, in each of which its engine may be the plain or the fast one."""

    def __init__(self, name: str, seed: int) -> None:
        self.plain, config = ENGINES[name]
        fast = self.plain.fast()
        assert fast is not None
        self.fast = with_begun_commits(fast)
        self.harness = VirtualHarness(self.plain, config, seed=seed)
        self.rng = random.Random(seed)
        self.term = 1
        self.models: dict[Any, Model] = {}

    def open(self, *, fast: bool) -> None:
        self.harness.engine_type = self.fast if fast else self.plain
        self.engine: WalEngine = self.harness.open()
        for log in (LOG, OTHER):
            if log not in self.models:
                self.engine.create(log, ZERO)
                self.models[log] = Model()
            check_holds(self.engine, self.models[log], log)

    def append(self, log: Any, count: int = 1) -> Append:
        """An append that fits: now and then it replaces a suffix."""
        last = self.models[log].last.index
        replace_from = None
        if self.rng.random() < 0.1 and self.models[log].held:
            self.term += 1
            replace_from = self.models[log].held[-1].op_id.index
        given = entries(replace_from or last + 1, count, self.term, self.rng.choice((24, 150, 700, 2100)))
        return Append(entries=given, replace_from=replace_from, commit_hint=max(0, last - 3))

    def work(self, groups: int) -> None:
        for _ in range(groups):
            log = self.rng.choice((LOG, LOG, OTHER))
            given = self.append(log, self.rng.randint(1, 3))
            commit(self.engine, given, log)
            self.models[log] = self.models[log].append(given)
            if self.rng.random() < 0.3:
                upto = max(0, self.models[log].last.index - 2)
                self._collected(log, self.engine.collect(log, upto).index)

    def _collected(self, log: Any, base: int) -> None:
        model = self.models[log]
        if base > model.base.index:
            held = [one for one in model.held if one.op_id.index > base]
            found = next(one.op_id for one in model.held if one.op_id.index == base)
            self.models[log] = Model(found, held)

    def end(self, how: str) -> None:
        if how == "closed":
            self.engine.close()
        elif how == "killed":
            self.harness.crash(self.engine, Survival.KEPT)
        elif how == "power lost":
            self.harness.crash(self.engine)
        else:
            self._cut_in_a_commit()

    def _cut_in_a_commit(self) -> None:
        """Power goes within a commit: what it leaves is a prefix of it, and counts from then on."""
        given = self.append(LOG, 3)
        before = self.models[LOG]
        self.harness.disk.faults.lose_power_after(written_bytes=self.rng.randrange(1, 6000))
        try:
            commit(self.engine, given)
            possible = [before.append(given)]
        except PowerLost:
            possible = before.possible_after(given)
        self.harness.disk.faults.heal()
        self.harness.crash(self.engine)
        engine = self.harness.fork(self.rng.randrange(1 << 30)).open()
        found = intact(engine)
        self.models[LOG] = next(one for one in possible if one.held == found.held)


@pytest.mark.parametrize("first", [False, True], ids=["plain first", "fast first"])
@pytest.mark.parametrize("end", ["closed", "killed", "power lost", "cut in a commit"])
@pytest.mark.parametrize("name", ENGINES)
def test_each_opens_what_the_other_left(name: str, end: str, first: bool) -> None:
    for seed in range(3):
        node = Node(name, seed)
        for life in range(LIVES):
            node.open(fast=first is (life % 2 == 0))
            node.work(node.rng.randint(0, 60))
            node.end(end)
        for fast in (False, True):
            node.open(fast=fast)
            node.engine.close()


def newest_is_reused(node: Node) -> bool:
    """Say whether the log's newest segment is in the file of a collected one."""
    path = max(path for path in node.harness.tree() if LOG.tablet_id in path and path.endswith(".seg"))
    return decode_segment_header(node.harness.tree()[path], path).space.sectors > 0


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_the_plain_engine_does_not_append_to_a_segment_in_a_re_used_file(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, a group must fill its last sector and be synced before the next; the plain writer does neither."""
    write, planted = SegmentWriter.write, []

    def checked(self: SegmentWriter, group: Any, *, sync: bool) -> None:
        planted.append(self.segment.header.space.sectors)
        write(self, group, sync=sync)

    met = 0
    for seed in range(12):
        node = Node("segmented", seed)
        node.open(fast=True)
        node.work(80 + seed)
        met += newest_is_reused(node)
        node.end(end)
        node.open(fast=False)
        with monkeypatch.context() as patch:
            patch.setattr(SegmentWriter, "write", checked)
            node.work(5)
        node.end("power lost")
        node.open(fast=True)
        node.engine.close()
    assert met > 3
    assert planted and not any(planted)


@pytest.mark.parametrize("end", ["cooled", "closed"])
@pytest.mark.parametrize("name", ENGINES)
def test_the_plain_engine_seals_what_the_fast_one_was_killed_in(name: str, end: str) -> None:
    """A segment in a re-used file that recovery left open is sealed, and that may be cut short at any byte."""
    for seed in range(3):
        node = Node(name, seed)
        node.open(fast=True)
        node.work(80 + seed)
        node.end("killed")
        for cut in range(0, 2000, 131):
            twin = node.harness.fork(seed)
            twin.engine_type = node.plain
            engine = twin.open()
            twin.disk.faults.lose_power_after(written_bytes=cut)
            with suppress(PowerLost):
                engine.cool(LOG) if end == "cooled" else engine.close()
            twin.disk.faults.heal()
            twin.crash(engine)
            for kind in (node.fast, node.plain):
                twin.engine_type = kind
                again = twin.open()
                for log, model in node.models.items():
                    check_holds(again, model, log)
                again.close()


@pytest.mark.parametrize("name", ENGINES)
def test_the_plain_engine_has_no_begin(name: str) -> None:
    plain, _ = ENGINES[name]
    fast = plain.fast()
    assert plain.begin is WalEngine.begin
    assert fast is not None and fast.begin is not WalEngine.begin
    assert (fast.name, fast.Config) == (plain.name, plain.Config)
    assert fast.__base__ is plain.__base__, "both are variants of one engine"
