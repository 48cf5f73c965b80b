"""The states that a crash of a recorded process may leave, and when.

Power is lost before the first call, between any two calls, and within each write that is durable on return. At each of
these moments any subset of the unsynced pieces may be on the disk. If there are few pieces, every subset is tried;
otherwise none, all, and random subsets: a prefix, half of the pieces, most, few, and one state torn within a sector.
Equal states of the same stage are tried once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import msgspec

from stelae.sim.draw import below
from stelae.testing.recorder import calls
from stelae.testing.recorder.disk import RecordedDisk
from stelae.testing.recorder.image import DiskImage
from stelae.testing.recorder.record import Recording
from stelae.testing.recorder.scenario import ScenarioStage

EXHAUSTIVE_PIECES_MAX = 4
"""Up to this number of pieces, every subset is tried."""

SHARES = (0.5, 0.9, 0.1)
"""The probability that each piece is kept, for one random state each."""


class ReplayState(msgspec.Struct, frozen=True):
    """A state that a crash may leave.

    Attributes:
        calls: how many calls were made, an interrupted one included.
        stage: the stage of the scenario at the crash.
        image: the disk after the crash.
    """

    calls: int
    stage: ScenarioStage
    image: DiskImage


def states(recording: Recording, seed: int) -> Iterator[ReplayState]:
    """Yield every state to check, in the order of the calls. The same seed gives the same states."""
    rng, seen = random.Random(seed), set()
    for count, stage, disk in moments(recording):
        for image in images(disk, rng):
            known = (stage.done, stage.begun, image.digest())
            if known not in seen:
                seen.add(known)
                yield ReplayState(count, stage, image)


def moments(recording: Recording) -> Iterator[tuple[int, ScenarioStage, RecordedDisk]]:
    """Yield the moments at which power may be lost: calls made, stage, and the disk, which later moments change."""
    disk, stage = RecordedDisk.holding(recording.before), ScenarioStage()
    yield 0, stage, disk
    for count, call in enumerate(recording.calls, 1):
        if isinstance(call, calls.Mark):
            stage = stage_after(call)
            continue
        if isinstance(call, calls.RecordedWrite) and call.dsync:
            within = disk.copy()
            within.repeat(msgspec.structs.replace(call, dsync=False))
            yield count, stage, within
        disk.repeat(call)
        yield count, stage, disk


def stage_after(mark: calls.Mark) -> ScenarioStage:
    """Return the stage of a scenario after a mark of ``scenario_process``."""
    word, number = mark.text.split()
    return ScenarioStage(int(number) + (word == "done"), word == "begin")


def images(disk: RecordedDisk, rng: random.Random) -> Iterator[DiskImage]:
    """Yield the states to check that a crash may leave of a disk. Some may be equal."""
    count = disk.pieces()
    if count <= EXHAUSTIVE_PIECES_MAX:
        yield from (disk.image_keeping(kept) for kept in itertools.product((False, True), repeat=count))
        return
    yield disk.image_keeping([False] * count)
    yield disk.image_keeping([True] * count)
    cut = below(rng, count)
    yield disk.image_keeping([number < cut for number in range(count)])
    for share in SHARES:
        yield disk.image_keeping([rng.random() < share for _ in range(count)])
    yield disk.image_drawn(rng)
