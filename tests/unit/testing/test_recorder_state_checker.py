"""Checks of crash states: a child that dies is reported, and an engine that loses entries fails."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from stelae.testing.conformance import wal_native
from stelae.testing.conformance.wal import WalNative
from stelae.testing.native_harness import NativeHarness
from stelae.testing.recorder import record as recording
from stelae.testing.recorder.image import DiskImage
from stelae.testing.recorder.replay import ReplayState
from stelae.testing.recorder.scenario import ScenarioStage
from stelae.testing.recorder.state_checker import state_checker
from stelae.testing.wal_memory import MemoryWal
from stelae_wal_segmented import SegmentedConfig, SegmentedWal

ADR = Path(__file__).resolve().parents[3] / "docs/adr/0022-not-proven.md"
EMPTY = ReplayState(0, ScenarioStage(), DiskImage())


def dies_of_sigbus() -> None:
    """Die as a process does that reads a cut file through a mapping."""
    os.kill(os.getpid(), signal.SIGBUS)


def harness_of(tmp_path: Path, setup: tuple[str, ...] = (), shortcut: tuple[str, ...] = ()) -> NativeHarness:
    config = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=8192)
    return NativeHarness(SegmentedWal, str(tmp_path), config, setup=setup, shortcut=shortcut)


def test_a_child_that_dies_is_reported_and_the_next_state_gets_another_child(tmp_path: Path) -> None:
    spec = harness_of(tmp_path, setup=(f"{__name__}:dies_of_sigbus",)).spec(f"{wal_native.SCENARIOS}:no_steps")
    with state_checker(spec, ()) as checker:
        for _ in range(2):
            assert "died of SIGBUS" in checker.wrong_with(EMPTY)


def test_a_state_that_fails_with_a_shortcut_is_checked_again_without_it(tmp_path: Path) -> None:
    shortcut = (f"{__name__}:dies_of_sigbus",)
    spec = harness_of(tmp_path).spec(f"{wal_native.SCENARIOS}:no_steps")
    with state_checker(spec, shortcut) as checker:
        assert checker.wrong_with(EMPTY) == ""


def test_an_engine_whose_own_files_are_virtual_elsewhere_passes_when_it_is_recorded(tmp_path: Path) -> None:
    if recording.available_method() is not None:
        suite = WalNative()
        suite.test_power_lost_may_lose_a_suffix_of_unsynced_entries_but_none_before_a_sync(harness_of(tmp_path))


def test_an_engine_that_keeps_nothing_fails_at_a_loss_of_power(tmp_path: Path) -> None:
    if recording.available_method() is not None:
        with pytest.raises(AssertionError, match="power lost at call"):
            WalNative().test_power_lost_at_any_call_keeps_acknowledged_entries(NativeHarness(MemoryWal, str(tmp_path)))


def test_an_engine_that_keeps_nothing_fails_when_its_process_is_killed(tmp_path: Path) -> None:
    with pytest.raises((AssertionError, KeyError)):
        WalNative().test_sigkill_at_any_moment_loses_no_acknowledged_entry(NativeHarness(MemoryWal, str(tmp_path)))


def test_without_a_recording_method_the_row_is_printed_as_not_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "METHODS", {})
    with pytest.raises(pytest.skip.Exception, match=r"^not proven here: .*un-synced writes .*: none of"):
        WalNative().test_power_lost_at_any_call_keeps_acknowledged_entries(harness_of(tmp_path))


def test_a_check_left_to_the_engine_is_not_proven_until_it_is_overridden(tmp_path: Path) -> None:
    suite, harness = WalNative(), harness_of(tmp_path)
    for check in (
        suite.test_a_flipped_bit_is_reported_or_harms_nothing,
        suite.test_a_full_disk_fails_groups_that_do_not_fit_until_there_is_space,
        suite.test_after_a_failed_sync_nothing_is_appended_now_or_after_a_restart,
    ):
        with pytest.raises(pytest.skip.Exception, match=r"^not proven here: "):
            check(harness)


def test_the_rows_that_may_be_unproven_are_those_of_the_decision() -> None:
    assert re.findall(r"^\| `([a-z ]+)` \|", ADR.read_text(), re.MULTILINE) == list(wal_native.UNPROVEN)
    with pytest.raises(KeyError):
        wal_native.not_proven("order", "there is no time")
