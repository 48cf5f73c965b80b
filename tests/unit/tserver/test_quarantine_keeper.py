"""The keeper of a quarantine: what it purges, when, and what it tells."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.hybrid_clock import timestamp
from stelae.lifecycle.quarantine import DeletionRecord, Quarantined, QuarantineSettings
from stelae.protocol.codec import decode, encode
from stelae.protocol.node_messages import QuarantineInfo, QuarantineRequest
from stelae.server.tserver import quarantine_keeper
from stelae.server.tserver.quarantine_keeper import QuarantineKeeper
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import TabletId

NOW_S = 1_000_000


class World:
    """A node whose quarantine, disk and clock a test decides; purges are decided by ``refuses``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: int) -> None:
        self.found: list[Quarantined] = []
        self.free_bytes = 1 << 40
        self.purged: list[str] = []
        self.refuses: set[str] = set()
        monkeypatch.setattr(quarantine_keeper, "list_quarantine", lambda files, layout: list(self.found))
        self.turns = MagicMock()
        self.turns.now_us.return_value = 0
        files = SimpleNamespace(space_left=lambda path: self.free_bytes)
        self.messenger = MagicMock()
        node: Any = SimpleNamespace(
            config=SimpleNamespace(extra={"quarantine": QuarantineSettings(**settings)}),
            turns=self.turns,
            messenger=self.messenger,
            files=files,
            layout=SimpleNamespace(root="/node"),
            scans=SimpleNamespace(run=lambda key, work, done: done(work())),
            time=SimpleNamespace(last=timestamp(NOW_S * 1_000_000)),
        )
        self.keeper = QuarantineKeeper(node, self)  # type: ignore[arg-type]
        self.keeper.start()

    def purge(self, name: str, done: Callable[[StelaeError | None], None]) -> None:
        if name in self.refuses:
            done(Unavailable("its deletion is not finished"))
            return
        self.purged.append(name)
        self.found = [one for one in self.found if one.name != name]
        done(None)

    def look(self) -> list[str]:
        """What one look purges."""
        self.purged = []
        self.turns.call_at.call_args.args[1]()
        return self.purged

    def told(self) -> QuarantineInfo:
        request = MagicMock(body=[encode(QuarantineRequest())])
        self.messenger.serve.call_args.args[1](request)
        return decode(request.reply.call_args.args[0][0], QuarantineInfo)


def one(name: str, size_bytes: int, age_s: int) -> Quarantined:
    about = DeletionRecord(tablet_id=TabletId("t"), table_name="", deleted_us=(NOW_S - age_s) * 1_000_000, reason="")
    return Quarantined(name=name, about=about, size_bytes=size_bytes)


def test_what_is_too_old_too_much_or_in_the_way_of_a_full_disk_goes_oldest_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(monkeypatch, bytes_max=25, age_s_max=100, free_bytes_min=50)
    world.found = [one("t.1", 10, 200), one("t.2", 10, 90), one("t.3", 10, 80), one("t.4", 10, 10)]
    with caplog.at_level("INFO"):
        assert world.look() == ["t.1", "t.2"]
    assert "quarantine purged name=t.1 size_bytes=10" in caplog.text, "the log tells"
    assert world.look() == []
    world.free_bytes = 45
    assert world.look() == ["t.3"]
    world.free_bytes = 0
    assert world.look() == ["t.4"]


def test_the_less_space_is_free_the_sooner_it_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a minute would let a disk fill between two looks, and every write would wait for the next one."""
    gib = 1 << 30
    world = World(monkeypatch, free_bytes_min=gib, interval_ms=60_000)
    for free, pause_us in ((1 << 40, 60_000_000), (3 * gib, 8_000_000), (gib + 1, 250_000), (0, 250_000)):
        world.free_bytes = free
        world.look()
        assert world.turns.call_at.call_args.args[0] == pause_us
    world.keeper.stop()
    before = world.turns.call_at.call_count
    world.look()
    assert world.turns.call_at.call_count == before, "a look that ends behind the stop plans no other"


def test_a_purge_that_is_refused_is_told_and_tried_again_at_the_next_look(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(monkeypatch, bytes_max=0)
    world.found, world.refuses = [one("t.1", 10, 9), one("u.1", 10, 1)], {"t.1"}
    assert world.look() == ["u.1"] and "not purged name=t.1" in caplog.text
    world.refuses = set()
    assert world.look() == ["t.1"]


def test_a_quarantine_that_cannot_be_read_is_told_and_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(monkeypatch, bytes_max=0)
    node = world.keeper._node
    whole = node.scans.run
    node.scans.run = lambda key, work, done: done(OSError("disk"))  # type: ignore[method-assign]
    assert world.look() == [] and "cannot be read" in caplog.text
    node.scans.run = whole  # type: ignore[method-assign]
    world.found = [one("t.1", 10, 9)]
    assert world.look() == ["t.1"]


def test_whoever_asks_is_told_how_much_there_is_and_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, bytes_max=25, age_s_max=100)
    assert (world.told().count, world.told().oldest_s) == (0, None)
    broken = Quarantined(name="u.1", about=None, size_bytes=5)
    converted = Quarantined(name="wals-segmented.1", about=None, size_bytes=5, of_deletion=False)
    world.found = [broken, converted, one("t.1", 10, 90), one("t.2", 10, 7)]
    told = world.told()
    assert (told.count, told.size_bytes, told.unreadable, told.oldest_s) == (4, 30, 1, 90)
    assert (told.bytes_max, told.age_s_max, told.free_bytes) == (25, 100, 1 << 40)
