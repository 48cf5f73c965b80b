"""An engine that cannot leave out a sync says so, and is held to it: nothing of it is taken back (ADR 30)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from stelae.spi.ids import LogId
from stelae.spi.wal import Append, Outcome
from stelae.testing.conformance.wal import WalConformance
from stelae.testing.conformance.wal_basics import ALWAYS_SYNCED
from stelae.testing.wal_harness import VirtualHarness
from stelae_wal_lmdb import LmdbWal
from stelae_wal_segmented import SegmentedConfig, SegmentedWal

SMALL = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=8192)

CHECKS: tuple[Callable[..., None], ...] = (
    WalConformance.test_a_group_torn_into_sectors_leaves_a_prefix_of_it,
    WalConformance.test_a_crash_may_lose_a_suffix_of_unsynced_entries_but_none_before_a_sync,
    WalConformance.test_a_crash_while_closing_loses_only_unsynced_entries,
)

WAITING: tuple[Callable[..., None], ...] = (
    WalConformance.test_a_failed_sync_of_earlier_unsynced_commits_is_reported,
    WalConformance.test_close_reports_a_log_that_fails_to_sync_and_closes_the_others,
)


class Careless(SegmentedWal):
    """Declares what it does not do."""

    capabilities: ClassVar[frozenset[str]] = SegmentedWal.capabilities | {ALWAYS_SYNCED}


class Thorough(Careless):
    """Syncs every commit, asked or not."""

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        return super().commit(group, sync=True)


def harness_of(engine: type[Any]) -> VirtualHarness:
    return VirtualHarness(engine, SMALL)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_engine_that_syncs_every_commit_is_not_asked_to_lose_one(check: Callable[..., None]) -> None:
    check(WalConformance(), harness_of(Thorough))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_engine_that_only_says_so_is_found_out(check: Callable[..., None]) -> None:
    with pytest.raises(AssertionError):
        check(WalConformance(), harness_of(Careless))


def test_an_engine_that_syncs_and_does_not_say_so_is_asked_to_lose_something() -> None:
    """The demand itself stays: otherwise the crashes of a suite that loses nothing would prove nothing."""

    class Silent(Thorough):
        capabilities: ClassVar[frozenset[str]] = SegmentedWal.capabilities

    with pytest.raises(AssertionError):
        CHECKS[0](WalConformance(), harness_of(Silent))


@pytest.mark.parametrize("check", WAITING, ids=lambda check: check.__name__)
def test_checks_on_what_waits_for_a_sync_are_skipped_and_say_why(check: Callable[..., None]) -> None:
    with pytest.raises(pytest.skip.Exception, match=ALWAYS_SYNCED):
        check(WalConformance(), harness_of(Thorough))


def test_of_the_engines_that_come_along_the_one_on_lmdb_declares_it() -> None:
    assert ALWAYS_SYNCED in LmdbWal.capabilities
    assert ALWAYS_SYNCED not in SegmentedWal.capabilities
