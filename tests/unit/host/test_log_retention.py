"""What keeps a log from being collected, and how much is kept for lagging peers (W7, ``durability.md`` rule 4)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from stelae.host.log_retention import LogRetentionLimit
from stelae.host.log_sizes import MARKS_MAX, LogSizes
from stelae.spi.ids import OpId
from stelae.spi.log import Entry, EntryKind

KIB = 1 << 10
GROUP_BYTES_MAX = 5 * 9 * KIB
EVERYTHING = 1 << 40


def entries(first: int, *sizes: int) -> tuple[Entry, ...]:
    return tuple(Entry(OpId(1, index), EntryKind.WRITE, index, bytes(size)) for index, size in enumerate(sizes, first))


def held_bytes(log: Sequence[Entry], upto: int) -> int:
    """What is left of a log that is collected up to an index."""
    return sum(entry.size_bytes for entry in log if entry.op_id.index > upto)


def test_without_a_bound_the_slowest_peer_keeps_all_that_it_lacks() -> None:
    retention = LogRetentionLimit(EVERYTHING, 0, 0)
    for index in range(1, 100):
        retention.appended(entries(index, 64 * KIB))
    retention.all_replicated(4)
    assert retention.collectable() == 4
    retention.all_replicated(99)
    assert retention.collectable() == 99


def test_after_a_start_nothing_is_collected_until_it_is_known_what_the_peers_have() -> None:
    """A replica that had just started took peers of which it knew nothing for peers that need nothing."""
    retention = LogRetentionLimit(EVERYTHING, 0, 7)
    assert retention.collectable() == 7
    retention.all_replicated(6)
    assert retention.collectable() == 7, "what is gone already"
    retention.all_replicated(12)
    retention.all_replicated(9)
    assert retention.collectable() == 12, "what all members had once, they have"


@pytest.mark.parametrize("bound", [1, 100 * KIB, 3 << 20])
def test_a_peer_that_lags_keeps_no_more_than_its_bound(bound: int) -> None:
    rng = random.Random(bound)
    retention = LogRetentionLimit(EVERYTHING, 0, 0, bound)
    log: list[Entry] = []
    step = GROUP_BYTES_MAX + bound * 4 // MARKS_MAX
    for _ in range(2000):
        group = entries(len(log) + 1, *(rng.randrange(8 * KIB) for _ in range(rng.randrange(1, 6))))
        retention.appended(group)
        log += group
        if len(log) % 7 == 0:
            held = held_bytes(log, retention.collectable())
            assert held <= max(bound, step)
            assert held >= min(held_bytes(log, 0), bound) - step, "and not much less"
    retention.all_replicated(len(log))
    assert retention.collectable() == len(log), "one that has it all keeps nothing"


def test_the_bound_is_for_peers_and_for_nothing_else() -> None:
    retention = LogRetentionLimit(50, 0, 0, 100 * KIB)
    retention.all_replicated(3)
    for index in range(1, 100):
        retention.appended(entries(index, 64 * KIB))
    assert retention.collectable() == 50, "what is not flushed is kept"
    retention.flushed(99)
    assert 90 < retention.collectable() < 99
    retention.anchor("copy", 8)
    assert retention.collectable() == 7, "a copy that is under way needs what it began with"
    retention.release("copy")
    retention.config_appended(20)
    assert retention.collectable() == 19
    retention.config_durable(20)
    assert 90 < retention.collectable() < 99


def test_what_was_cut_off_counts_no_more() -> None:
    retention = LogRetentionLimit(EVERYTHING, 0, 0, 1000 * KIB)
    for index in range(1, 4):
        retention.appended(entries(index, 256 * KIB))
    for _ in range(50):
        retention.cut(3)
        retention.appended(entries(3, 256 * KIB))
    assert retention.collectable() == 0, "three entries, and never more than that"
    for index in range(4, 9):
        retention.appended(entries(index, 256 * KIB))
    assert retention.collectable() == 5
    retention.cut(2)
    assert retention.collectable() == 1, "what comes instead is kept again"


def test_what_was_in_the_log_before_this_start_counts_towards_the_bound() -> None:
    """It counted for nothing, so each restart gave a lagging peer the whole bound once more."""
    sizes = LogSizes(10)
    for index in range(11, 21):
        sizes.appended(entries(index, 64 * KIB))
    retention = LogRetentionLimit(EVERYTHING, 0, 10, 320 * KIB, sizes)
    before = retention.collectable()
    assert before in (15, 16)
    retention.appended(entries(21, 64 * KIB))
    assert retention.collectable() == before + 1


# -- configs that are not in metadata (rule 4) ------------------------------------------------------


class Disk:
    """What survives a crash of one replica, as far as configs go: the log behind its base, and metadata."""

    def __init__(self) -> None:
        self.base = 0
        self.last = 0
        self.configs: list[int] = []  #: Indexes of the config entries of the log.
        self.saved = 0  #: Index of the config in metadata.

    def config_before(self, index: int) -> int:
        """The config in force if the log is cut at an index, as a restart finds it."""
        held = [config for config in self.configs if self.base < config < index]
        return max([self.saved, *held])


class World:
    """A replica's retention beside what its disk holds, and beside every config that was ever appended."""

    def __init__(self, retention: LogRetentionLimit) -> None:
        self.retention = retention
        self.disk = Disk()
        self.commit = 0

    def append(self, *, config: bool = False) -> None:
        self.disk.last += 1
        if config:
            self.disk.configs.append(self.disk.last)
            self.retention.config_appended(self.disk.last)
        self.retention.appended(entries(self.disk.last, 1))

    def commit_and_flush(self, index: int) -> None:
        self.commit = index
        self.retention.flushed(index)
        self.retention.all_replicated(index)

    def save_config(self) -> None:
        self.disk.saved = max([self.disk.saved, *(config for config in self.disk.configs if config <= self.commit)])
        self.retention.config_durable(self.disk.saved)

    def cut(self, from_index: int) -> None:
        self.disk.last = from_index - 1
        self.disk.configs = [config for config in self.disk.configs if config < from_index]
        self.retention.cut(from_index)

    def collect(self) -> None:
        self.disk.base = max(self.disk.base, min(self.retention.collectable(), self.commit))


def test_of_two_configs_that_are_not_in_metadata_the_older_one_keeps_the_log() -> None:
    """The newer one did: the older went, and when the newer was rolled back nobody knew the members any more."""
    retention = LogRetentionLimit(50, 0, 0)
    retention.all_replicated(50)
    retention.config_appended(20)
    retention.config_appended(30)
    assert retention.collectable() == 19
    retention.config_durable(20)
    assert retention.collectable() == 29
    retention.config_durable(30)
    assert retention.collectable() == 50


def histories() -> Iterator[tuple[int, list[Callable[[World], None]]]]:
    """Drawn lives of a log: appends, configs, commits, flushes, saves, failed appends and collections."""
    for seed in range(150):
        rng = random.Random(seed)
        yield seed, [_drawn(rng) for _ in range(rng.randrange(5, 40))]


def _drawn(rng: random.Random) -> Callable[[World], None]:
    draw, part = rng.random(), rng.random()

    def step(world: World) -> None:
        ahead = world.disk.last - world.commit
        if draw < 0.45:
            world.append(config=part < 0.4)
        elif draw < 0.65:
            world.commit_and_flush(world.commit + round(part * ahead))
        elif draw < 0.75:
            world.save_config()
        elif draw < 0.85 and ahead:
            world.cut(world.commit + 1 + int(part * ahead))
        else:
            world.collect()

    return step


def check_every_prefix(make: Callable[[], LogRetentionLimit]) -> None:
    """Crash after every step: wherever the log is cut then, the config before the cut is known as it was."""
    for seed, steps in histories():
        world = World(make())
        appended: list[int] = []
        for number, step in enumerate(steps):
            step(world)
            appended = sorted({*(c for c in appended if c <= world.disk.last), *world.disk.configs})
            for cut in range(world.commit + 1, world.disk.last + 2):
                expected = max([0, *(config for config in appended if config < cut)])
                assert world.disk.config_before(cut) == expected, f"seed {seed}, step {number}, cut at {cut}"
            pending = [config for config in world.disk.configs if config > world.disk.saved]
            limit = min([world.commit, *(config - 1 for config in pending)])
            assert world.retention.collectable() == limit, f"seed {seed}, step {number}: all that may go, and no more"


def test_a_crash_at_any_step_leaves_every_config_that_may_come_into_force_again() -> None:
    check_every_prefix(lambda: LogRetentionLimit(0, 0, 0))


class KeepsForTheNewest(LogRetentionLimit):
    """Planted bug: the newest config keeps the log."""

    def collectable(self) -> int:
        self._configs.reverse()
        try:
            return super().collectable()
        finally:
            self._configs.reverse()


class HearsNoCut(LogRetentionLimit):
    """Planted bug: nothing is heard of a cut."""

    def cut(self, from_index: int) -> None:
        pass


@pytest.mark.parametrize("bug", [KeepsForTheNewest, HearsNoCut])
def test_a_planted_bug_is_found_by_the_crashes(bug: type[LogRetentionLimit]) -> None:
    with pytest.raises(AssertionError):
        check_every_prefix(lambda: bug(0, 0, 0))
