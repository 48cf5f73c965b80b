"""The states that a crash of a recorded process may leave, and when.

Power is lost before the first call, between any two calls, and inside each write that would have been durable on
return. At each of these moments every subset of what was not synced may be on the disk: all of them are looked at
where they are few; else nothing, everything, and drawn ones: a prefix, scattered pieces, all but a few, a few, and
one torn within a sector. States that are equal at the same stage are looked at once."""

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
"""Up to so many pieces, every subset is looked at."""

SHARES = (0.5, 0.9, 0.1)
"""How likely each piece is kept in the states that scatter them, one state for each share."""


class ReplayState(msgspec.Struct, frozen=True):
    """What a crash may leave.

    Attributes:
        calls: how many calls had been made, one that was interrupted included.
        stage: how far the scenario had come.
        image: what is on the disk.
    """

    calls: int
    stage: ScenarioStage
    image: DiskImage


def states(recording: Recording, seed: int) -> Iterator[ReplayState]:
    """Every state that is looked at, in the order of the calls. The same seed draws the same."""
    rng, seen = random.Random(seed), set()
    for count, stage, disk in moments(recording):
        for image in images(disk, rng):
            known = (stage.done, stage.begun, image.digest())
            if known not in seen:
                seen.add(known)
                yield ReplayState(count, stage, image)


def moments(recording: Recording) -> Iterator[tuple[int, ScenarioStage, RecordedDisk]]:
    """When power may be lost: calls made, stage, and the disk, which is only lent."""
    disk, stage = RecordedDisk.holding(recording.before), ScenarioStage()
    yield 0, stage, disk
    for count, call in enumerate(recording.calls, 1):
        if isinstance(call, calls.Mark):
            stage = stage_after(call)
            continue
        if isinstance(call, calls.RecordedWrite) and call.dsync:
            inside = disk.copy()
            inside.repeat(msgspec.structs.replace(call, dsync=False))
            yield count, stage, inside
        disk.repeat(call)
        yield count, stage, disk


def stage_after(mark: calls.Mark) -> ScenarioStage:
    """How far a scenario has come with a mark of ``live``."""
    word, number = mark.text.split()
    return ScenarioStage(int(number) + (word == "done"), word == "begin")


def images(disk: RecordedDisk, rng: random.Random) -> Iterator[DiskImage]:
    """What a crash may leave of a disk, as far as it is looked at; some may be equal."""
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
