"""``RealFiles`` itself, call by call, on a system that forgets what was not synced (durability rules 7, 9 and 24)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from stelae.machine.files import RealFiles
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import SyncFailed
from stelae.testing.disk_calls import DiskCalls
from tests.sim.planted_bug import Mutant
from tests.sim.planting import planted
from tests.unit.files.replaying import NoDsync, ShortWrites, Step, check_every_crash, check_every_failed_sync

Original = Callable[..., Any]
LONG = [b"%07d" % number for number in range(1100)]
"""More buffers than one call takes."""


def replaces(path: str, data: bytes) -> Callable[[RealFiles], None]:
    return lambda files: files.replace(path, data)


def creates(path: str, data: bytes) -> Callable[[RealFiles], None]:
    """A file that is written synchronously, then its name."""

    def do(files: RealFiles) -> None:
        with closing(files.create(path)) as file:
            file.pwritev([data], 0, dsync=True)
        files.sync_directory(path.rpartition("/")[0])

    return do


def writes(path: str, *, dsync: bool, data_only: bool = False) -> Callable[[RealFiles], None]:
    def do(files: RealFiles) -> None:
        with closing(files.open(path, writable=True)) as file:
            file.pwritev(LONG, 0, dsync=dsync)
            if not dsync:
                file.sync(data_only=data_only)

    return do


def resizes(path: str) -> Callable[[RealFiles], None]:
    def do(files: RealFiles) -> None:
        with closing(files.open(path, writable=True)) as file:
            file.truncate(2)
            file.preallocate(4)
            file.sync()

    return do


def makes_directory(path: str) -> Callable[[RealFiles], None]:
    def do(files: RealFiles) -> None:
        files.make_directory(path)
        files.sync_directory(path.rpartition("/")[0] or "/")

    return do


def moves(source: str, target: str) -> Callable[[RealFiles], None]:
    def do(files: RealFiles) -> None:
        files.rename(source, target)
        for parent in (source.rpartition("/")[0], target.rpartition("/")[0]):
            files.sync_directory(parent)

    return do


def removes(path: str, *, tree: bool = False) -> Callable[[RealFiles], None]:
    def do(files: RealFiles) -> None:
        if tree:
            files.remove_tree(path)
        else:
            files.remove(path)
        files.sync_directory(path.rpartition("/")[0] or "/")

    return do


ALL = b"".join(LONG)
STORIES: dict[str, list[Step]] = {
    "replace": [
        Step(makes_directory("/d"), {}),
        Step(replaces("/d/vote", b"old"), {"/d/vote": b"old"}),
        Step(replaces("/d/vote", b"new, and longer"), {"/d/vote": b"new, and longer"}),
        Step(replaces("/d/block", b"other"), {"/d/vote": b"new, and longer", "/d/block": b"other"}),
    ],
    "writes": [
        Step(makes_directory("/d"), {}),
        Step(creates("/d/a", b"first"), {"/d/a": b"first"}, atomic=False),
        Step(writes("/d/a", dsync=True), {"/d/a": ALL}, atomic=False),
        Step(resizes("/d/a"), {"/d/a": b"00\0\0"}, atomic=False),
        Step(writes("/d/a", dsync=False), {"/d/a": ALL}, atomic=False),
        Step(resizes("/d/a"), {"/d/a": b"00\0\0"}, atomic=False),
        Step(writes("/d/a", dsync=False, data_only=True), {"/d/a": ALL}, atomic=False),
    ],
    "names": [
        Step(makes_directory("/d"), {}),
        Step(makes_directory("/d/e"), {}),
        Step(replaces("/d/a", b"a"), {"/d/a": b"a"}),
        Step(moves("/d/a", "/d/e/b"), {"/d/e/b": b"a"}),
        Step(replaces("/d/c", b"c"), {"/d/e/b": b"a", "/d/c": b"c"}),
        Step(removes("/d/c"), {"/d/e/b": b"a"}),
        Step(moves("/d/e", "/d/f"), {"/d/f/b": b"a"}),
        Step(removes("/d/f", tree=True), {}),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_what_returned_survives_power_lost_before_any_call(story: str) -> None:
    assert check_every_crash(STORIES[story]) >= 10


@pytest.mark.parametrize("system", [NoDsync, ShortWrites])
def test_so_does_a_synchronous_write_on_a_system_that_makes_it_of_several_calls(system: type[DiskCalls]) -> None:
    short = [
        Step(makes_directory("/d"), {}),
        Step(creates("/d/a", b"more than five bytes"), {"/d/a": b"more than five bytes"}, atomic=False),
    ]
    assert check_every_crash(short, system) >= 5
    assert check_every_failed_sync(short, system) >= 3


@pytest.mark.parametrize("story", STORIES)
def test_a_sync_that_failed_is_an_error_of_the_step_that_needed_it(story: str) -> None:
    assert check_every_failed_sync(STORIES[story]) >= 5


def test_a_replacement_makes_exactly_these_calls_in_this_order() -> None:
    calls = DiskCalls(VirtualDisk())
    files = RealFiles(calls)
    files.make_directory("/d")
    files.replace("/d/vote", b"new")
    neighbour = "/d/.vote.tmp"
    assert calls.made[1:] == [
        ("create", neighbour),
        ("pwritev", neighbour),
        ("fsync", neighbour),
        ("rename", neighbour),
        ("fsync directory", "/d"),
    ]


# -- planted bugs ---------------------------------------------------------------------------------


def without_its_directory_sync(original: Original, self: Any, path: str, data: bytes) -> None:
    sync, self.sync_directory = self.sync_directory, lambda path: None
    try:
        original(self, path, data)
    finally:
        self.sync_directory = sync


def rename_alone(original: Original, files: Any, temporary: str, path: str, parent: str) -> None:
    files.rename(temporary, path)


def sync_the_directory_first(original: Original, files: Any, temporary: str, path: str, parent: str) -> None:
    files.sync_directory(parent)
    files.rename(temporary, path)


def write_alone(original: Original, files: Any, path: str, data: bytes) -> None:
    with closing(files.create(path)) as file:
        file.pwritev([data], 0)


def write_in_place(original: Original, self: Any, path: str, data: bytes) -> None:
    with closing(self.open(path, writable=True) if self.exists(path) else self.create(path)) as file:
        file.truncate(0)
        file.pwritev([data], 0, dsync=True)
    self.sync_directory(path.rpartition("/")[0])


def do_nothing(original: Original, *arguments: Any, **options: Any) -> None:
    return None


def once_more(original: Original, *arguments: Any, **options: Any) -> None:
    try:
        original(*arguments, **options)
    except SyncFailed:
        original(*arguments, **options)


def write_once_more(original: Original, files: Any, path: str, data: bytes) -> None:
    try:
        original(files, path, data)
    except SyncFailed:
        original(files, path, data)


def sync_the_directory_once_more(original: Original, files: Any, temporary: str, path: str, parent: str) -> None:
    try:
        original(files, temporary, path, parent)
    except SyncFailed:
        files.sync_directory(parent)


def swallow_the_error(original: Original, *arguments: Any, **options: Any) -> None:
    with suppress(SyncFailed):
        original(*arguments, **options)


def leave_the_sync_out(original: Original, self: Any, buffers: Any, offset: int, *, dsync: bool = False) -> Any:
    return original(self, buffers, offset)


def sync_the_rest_not(original: Original, *arguments: Any) -> Any:
    return original(*arguments[:-1], 0)


FILES = "stelae.machine.files"
REPLACING = "stelae.host.atomic_replace"


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug, and the check that must find it: on which system, in which story, by a crash or by a failed sync."""

    mutant: Mutant
    story: str
    check: Callable[..., int] = check_every_crash
    system: type[DiskCalls] = DiskCalls


def bug(name: str, target: str, replacement: Callable[..., Any], rule: str = "durability 9 and 24") -> Mutant:
    return Mutant(name=name, rule=rule, target=target, replacement=replacement, invariant="replayed")


FAILED = check_every_failed_sync
RETRIED = bug("a failed sync is repeated once", f"{FILES}:_sync", once_more, "durability 7")
SWALLOWED = bug("a failed sync is no error", f"{FILES}:_sync", swallow_the_error, "durability 7")
PLANTS = (
    Plant(
        bug("replace without its directory sync", f"{FILES}:RealFiles.replace", without_its_directory_sync), "replace"
    ),
    Plant(bug("a replacement is renamed only", f"{REPLACING}:_publish", rename_alone), "replace"),
    Plant(
        bug("the directory is synced, then renamed in", f"{REPLACING}:_publish", sync_the_directory_first), "replace"
    ),
    Plant(bug("replace without its file sync", f"{REPLACING}:_write", write_alone), "replace"),
    Plant(bug("replace writes in place", f"{FILES}:RealFiles.replace", write_in_place), "replace"),
    Plant(bug("directories are not synced", f"{FILES}:RealFiles.sync_directory", do_nothing), "names"),
    Plant(bug("a new directory has no durable name", f"{FILES}:RealFiles.sync_directory", do_nothing), "writes"),
    Plant(bug("nothing is synced", f"{FILES}:_sync", do_nothing), "writes"),
    Plant(bug("files are not synced", f"{FILES}:RealFile.sync", do_nothing), "writes"),
    Plant(bug("synchronous writes are not", f"{FILES}:RealFile.pwritev", leave_the_sync_out), "writes"),
    Plant(bug("what one call did not take is not synced", f"{FILES}:_write_rest", sync_the_rest_not), "writes"),
    Plant(
        bug("no sync after a write without the flag", f"{FILES}:RealFile.sync", do_nothing), "writes", system=NoDsync
    ),
    Plant(RETRIED, "replace", FAILED),
    Plant(RETRIED, "writes", FAILED),
    Plant(RETRIED, "names", FAILED),
    Plant(SWALLOWED, "writes", FAILED),
    Plant(bug("a replacement is written twice", f"{REPLACING}:_write", write_once_more), "replace", FAILED),
    Plant(bug("its name is synced twice", f"{REPLACING}:_publish", sync_the_directory_once_more), "replace", FAILED),
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.mutant.name}: {plant.story}")
def test_a_planted_bug_is_found(plant: Plant) -> None:
    with planted(plant.mutant) as record, pytest.raises(AssertionError, match=r"holds|no step raised"):
        plant.check(STORIES[plant.story], plant.system)
    assert record.calls > 0
