"""What a loss of power may leave of recorded calls: whatever was not synced, in any mixture, and nothing else."""

from __future__ import annotations

import random

import pytest

from stelae.testing.recorder import calls
from stelae.testing.recorder.calls import SystemCall
from stelae.testing.recorder.image import DiskImage
from stelae.testing.recorder.record import Recording
from stelae.testing.recorder.replay import images, moments, states
from stelae.testing.recorder.scenario import ScenarioStage, every_operation_and_restarts, random_history, run_until
from stelae.testing.wal_model import LOG

SECTOR = 512


def after(*done: SystemCall, before: DiskImage | None = None) -> list[DiskImage]:
    """What a crash after all of these calls, or inside the last one, may leave."""
    found: list[DiskImage] = []
    for count, _, disk in moments(Recording(before or DiskImage(), done)):
        if count == len(done):
            found += images(disk, random.Random(1))
    return found


def contents(found: list[DiskImage], path: str) -> set[bytes | None]:
    return {image.files.get(path) for image in found}


ONE = calls.Create("/a"), calls.RecordedSync("/")


def test_what_was_synced_is_there_and_what_was_not_is_there_or_zero_or_missing() -> None:
    found = after(
        *ONE, calls.RecordedWrite("/a", 0, b"old"), calls.RecordedSync("/a"), calls.RecordedWrite("/a", 3, b"new")
    )
    assert contents(found, "/a") == {b"old", b"oldnew"}


def test_sectors_of_one_write_are_lost_each_by_itself() -> None:
    data = b"1" * SECTOR + b"2" * SECTOR
    found = after(*ONE, calls.RecordedWrite("/a", 0, data))
    assert contents(found, "/a") == {b"", b"1" * SECTOR, bytes(SECTOR) + b"2" * SECTOR, data}


def test_a_durable_write_says_nothing_of_those_before_it() -> None:
    early, late = (
        calls.RecordedWrite("/a", 0, b"1" * SECTOR),
        calls.RecordedWrite("/a", SECTOR, b"2" * SECTOR, dsync=True),
    )
    found = contents(after(*ONE, early, late), "/a")
    over = {bytes(SECTOR) + b"2" * SECTOR, b"1" * SECTOR + b"2" * SECTOR}
    assert found == {b"", b"1" * SECTOR} | over, "power may be lost before such a write is over"
    assert contents(after(*ONE, early, late, calls.RecordedSync("/")), "/a") == over


def test_a_name_is_lost_until_its_directory_is_synced() -> None:
    lost = after(calls.Create("/a"), calls.RecordedWrite("/a", 0, b"x"), calls.RecordedSync("/a"))
    assert contents(lost, "/a") == {None, b"x"}
    assert contents(after(*lost_calls(), calls.RecordedSync("/")), "/a") == {b"x"}


def lost_calls() -> tuple[SystemCall, ...]:
    return calls.Create("/a"), calls.RecordedWrite("/a", 0, b"x"), calls.RecordedSync("/a")


def test_a_rename_happens_or_does_not() -> None:
    before = DiskImage((), {"/a": b"new", "/b": b"old"})
    found = after(calls.Rename("/a", "/b"), before=before)
    assert [image.files for image in found] == [before.files, {"/b": b"new"}]


def test_of_two_operations_on_a_name_the_later_is_not_kept_alone() -> None:
    before = DiskImage((), {"/a": b"1"})
    found = after(calls.Remove("/a"), calls.Create("/a"), before=before)
    assert contents(found, "/a") == {b"1", None, b""}


def test_many_pieces_are_drawn_the_same_for_one_seed_and_otherwise_for_another() -> None:
    done = (*ONE, *(calls.RecordedWrite("/a", SECTOR * number, b"x" * SECTOR) for number in range(40)))
    recording = Recording(DiskImage(), done)
    digests = [[state.image.digest() for state in states(recording, seed)] for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]
    assert len(set(digests[0])) > 100


def test_marks_say_how_far_the_scenario_had_come() -> None:
    done = (calls.Mark("begin 0"), *ONE, calls.Mark("done 0"), calls.Mark("begin 1"), calls.Remove("/a"))
    stages = list(dict.fromkeys(state.stage for state in states(Recording(DiskImage(), done), 1)))
    assert stages == [ScenarioStage(0, False), ScenarioStage(0, True), ScenarioStage(1, True)]


def test_a_life_holds_one_model_between_steps_and_several_within_one() -> None:
    steps = every_operation_and_restarts()
    between, within = run_until(steps, ScenarioStage(1, False)), run_until(steps, ScenarioStage(1, True))
    assert len(between.possible[LOG]) == 1
    assert [model.last.index for model in within.possible[LOG]] == [0, 1, 2, 3]


@pytest.mark.parametrize("kept", [0, 1])
def test_histories_differ_by_seed_and_can_be_lived(kept: int) -> None:
    for seed in range(20):
        steps = random_history(seed, kept)
        assert len(run_until(steps, ScenarioStage(len(steps), False)).possible[LOG]) == 1
