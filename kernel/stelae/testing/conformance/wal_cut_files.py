"""Conformance checks for log engines: a file of a closed log that was cut is reported (ADR 35).

A segment that was open when its process died may end in a torn tail, which recovery has to cut. A closed segment that
was cut looks the same, unless the engine has recorded its length somewhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from stelae.spi.errors import Foreign, FutureVersion
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append
from stelae.testing.conformance.wal_crashes import WalCrashes
from stelae.testing.conformance.wal_damage import check_damaged, check_set_aside
from stelae.testing.wal_harness import VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG, OTHER, Model, commit, entries

CUTS = 16
"""How many cuts of each file a virtual disk makes, spread evenly over the file."""


class WalCutFiles(WalCrashes):
    """Adds a check on a virtual disk, where many cuts of every file cost little."""

    def test_a_cut_file_of_a_closed_log_is_reported(self, harness: VirtualHarness) -> None:
        check_cuts(harness, _cut_and_zeroed)


def check_cuts(harness: WalHarness, cuts: Callable[[bytes], Iterable[bytes]]) -> None:
    """Close a log, cut each of its files in turn, and check that the log never opens shorter without a report.

    Damage that was reported once is reported again, also after a crash and after a clean close.

    Args:
        harness: an empty one.
        cuts: yields the contents to try in place of a file's contents.
    """
    model = _closed_twice(harness)
    reported = 0
    for path, contents in harness.tree().items():
        name = path.removeprefix(harness.directory)
        for left in cuts(contents):
            twin = harness.fork()
            twin.write(f"{twin.directory}{name}", left)
            what = f"{name}, closed with {len(contents)} bytes: {len(left.rstrip(bytes(1)))} of {len(left)} are left"
            if not check_damaged(twin, model, what):
                continue
            reported += 1
            assert check_damaged(twin, model, what), f"{what}: not reported again after a crash"
            with suppress(Foreign, FutureVersion):
                twin.open().close()
            assert check_damaged(twin, model, what), f"{what}: not reported again after a clean close"
            check_set_aside(twin, what)
    assert reported, "no cut was reported"


def first_half(contents: bytes) -> Iterator[bytes]:
    """Yield the first half of a file's contents, not counting the zeros at its end."""
    used = len(contents.rstrip(b"\0"))
    if used:
        yield contents[: used // 2]


def _cut_and_zeroed(contents: bytes) -> Iterator[bytes]:
    yield from first_half(contents)
    for length in range(0, len(contents), len(contents) // CUTS + 1):
        yield contents[:length]
        yield contents[:length] + bytes(len(contents) - length)
    yield contents[:-1]


def _closed_twice(harness: WalHarness) -> Model:
    """Write a log, close it, append a little, and close it again; return its model."""
    engine, model = harness.open(), Model()
    for log in (LOG, OTHER):
        engine.create(log, ZERO)
    for first in range(1, 61, 12):
        given = Append(entries=entries(first, 12, size_bytes=200), commit_hint=first)
        commit(engine, given)
        model = model.append(given)
    engine.close()
    engine = harness.open()
    commit(engine, Append(entries=entries(1, 3)), OTHER)
    given = Append(entries=entries(61, 2, term=2), commit_hint=61)
    commit(engine, given)
    engine.close()
    return model.append(given)
