"""The log of a copy whose source has an engine without snapshots: whole, or refused; never of two logs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from stelae.server.tserver import log_view
from stelae.server.tserver.log_view import EntriesRead, view_of
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import Unavailable
from stelae.spi.ids import ZERO
from stelae.spi.log import Entry
from stelae.spi.wal import Append
from stelae.testing.wal_harness import fake_services
from stelae.testing.wal_memory import MemoryWal
from stelae.testing.wal_model import LOG, commit, entries


class WithoutSnapshots(MemoryWal):
    """Calls ``meanwhile`` after each read, once."""

    capabilities: ClassVar[frozenset[str]] = frozenset({"volatile"})
    meanwhile: Callable[[], None] | None = None

    def read(self, log: object, first: int, end: int, bytes_max: int) -> list[Entry]:  # type: ignore[override]
        found = super().read(LOG, first, end, bytes_max)
        change, self.meanwhile = self.meanwhile, None
        if change is not None:
            change()
        return found


@pytest.fixture
def wal(monkeypatch: pytest.MonkeyPatch) -> WithoutSnapshots:
    """An engine with a log of forty entries, of which a read returns about five."""
    monkeypatch.setattr(log_view, "READ_BYTES", 5 * entries(1, 1)[0].size_bytes)
    disk = VirtualDisk()
    wal = WithoutSnapshots.open("/wals", None, fake_services(disk))
    wal.create(LOG, ZERO)
    commit(wal, Append(entries=entries(1, 40)))
    return wal


def replace(wal: WithoutSnapshots, first: int, count: int) -> Callable[[], None]:
    return lambda: commit(wal, Append(entries=entries(first, count, term=2), replace_from=first))


def test_all_entries_up_to_the_last_one_at_the_time_of_the_call_are_returned(wal: WithoutSnapshots) -> None:
    view = view_of(wal, LOG, 11)
    wal.meanwhile = lambda: commit(wal, Append(entries=entries(41, 5)))
    assert [*view.entries()] == [*entries(1, 40)][10:]
    assert [*view_of(wal, LOG, 46).entries()] == []
    view.release()


def test_an_engine_with_snapshots_makes_one(monkeypatch: pytest.MonkeyPatch, wal: WithoutSnapshots) -> None:
    monkeypatch.setattr(WithoutSnapshots, "capabilities", MemoryWal.capabilities)
    assert not isinstance(view_of(wal, LOG, 1), EntriesRead)


@pytest.mark.parametrize(("first", "count"), [(3, 60), (3, 0), (3, 5), (1, 40)])
def test_a_suffix_that_is_replaced_meanwhile_is_not_mixed_with_the_old_one(
    wal: WithoutSnapshots, first: int, count: int
) -> None:
    """Such a log has never been. Together with its terms, the target would answer for entries that it does not have."""
    wal.meanwhile = replace(wal, first, count)
    with pytest.raises(Unavailable, match="ask again"):
        list(view_of(wal, LOG, 1).entries())


def test_a_suffix_that_is_replaced_behind_what_was_read_is_that_of_the_new_log(wal: WithoutSnapshots) -> None:
    wal.meanwhile = replace(wal, 20, 30)
    assert [*view_of(wal, LOG, 1).entries()] == [*entries(1, 19), *entries(20, 21, term=2)]
