"""A log that was closed knows its length: what is cut from its files afterwards is missed (ADR 35).

A segment that was open when its process died may end in a torn tail, which recovery has to cut. A closed one that was
cut looks just like it, unless the engine wrote down somewhere else how much of it there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from stelae.spi.errors import Foreign, FutureVersion
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append
from stelae.testing.conformance.wal_crashes import WalCrashes
from stelae.testing.conformance.wal_damage import judge
from stelae.testing.wal_harness import VirtualHarness, WalHarness
from stelae.testing.wal_model import LOG, OTHER, Model, commit, entries

PLACES = 16
"""In how many places each file is cut on a virtual disk, spread evenly over it."""


class WalClosed(WalCrashes):
    """Adds a check on a virtual disk, where it costs little to cut every file in many places."""

    def test_what_is_cut_from_a_closed_log_is_missed(self, harness: VirtualHarness) -> None:
        check_cuts(harness, _cut_and_zeroed)


def check_cuts(harness: WalHarness, cuts: Callable[[bytes], Iterable[bytes]]) -> None:
    """Close a log, shorten one of its files after the other, and assert that no log opens shorter without a word.

    What was reported once is reported for good, also after a crash and after closing.

    Args:
        cuts: what is to stand in the place of a file with these contents."""
    model = _closed_twice(harness)
    reported = 0
    for path, contents in harness.tree().items():
        name = path.removeprefix(harness.directory)
        for left in cuts(contents):
            twin = harness.fork()
            twin.write(f"{twin.directory}{name}", left)
            what = f"{name}, closed with {len(contents)} bytes: {len(left.rstrip(bytes(1)))} of {len(left)} are left"
            if not judge(twin, model, what):
                continue
            reported += 1
            assert judge(twin, model, what), f"{what}: forgotten by a crash"
            with suppress(Foreign, FutureVersion):
                twin.open().close()
            assert judge(twin, model, what), f"{what}: forgotten by closing"
    assert reported, "no cut was ever noticed"


def half_of_what_is_used(contents: bytes) -> Iterator[bytes]:
    """A file cut in the middle of what stands before its zeros."""
    used = len(contents.rstrip(b"\0"))
    if used:
        yield contents[: used // 2]


def _cut_and_zeroed(contents: bytes) -> Iterator[bytes]:
    yield from half_of_what_is_used(contents)
    for length in range(0, len(contents), len(contents) // PLACES + 1):
        yield contents[:length]
        yield contents[:length] + bytes(len(contents) - length)
    yield contents[:-1]


def _closed_twice(harness: WalHarness) -> Model:
    """A log that was closed, goes on with a little, and is closed again."""
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
