"""Judging what a crash left: whoever dies of it is noticed, and an engine that keeps nothing is found out."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from stelae.testing.conformance import wal_native
from stelae.testing.conformance.wal import WalNative
from stelae.testing.recorder import record as recording
from stelae.testing.recorder.court import court
from stelae.testing.recorder.image import DiskImage
from stelae.testing.recorder.replay import ReplayState
from stelae.testing.recorder.scenario import ScenarioStage
from stelae.testing.wal_memory import MemoryWal
from stelae.testing.wal_native import NativeHarness
from stelae_wal_segmented import SegmentedConfig, SegmentedWal

ADR = Path(__file__).resolve().parents[3] / "docs/adr/0022-not-proven.md"
EMPTY = ReplayState(0, ScenarioStage(), DiskImage())


def dies_of_sigbus() -> None:
    """What a file that was cut does to a process that reads it through a map."""
    os.kill(os.getpid(), signal.SIGBUS)


def harness_of(tmp_path: Path, setup: tuple[str, ...] = (), shortcut: tuple[str, ...] = ()) -> NativeHarness:
    config = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=8192)
    return NativeHarness(SegmentedWal, str(tmp_path), config, setup=setup, shortcut=shortcut)


def test_a_judge_that_dies_says_so_and_the_next_state_gets_another(tmp_path: Path) -> None:
    spec = harness_of(tmp_path, setup=(f"{__name__}:dies_of_sigbus",)).spec(f"{wal_native.SCENARIOS}:nothing")
    with court(spec, ()) as judges:
        for _ in range(2):
            assert "died of SIGBUS" in judges.wrong_with(EMPTY)


def test_what_a_judge_with_a_shortcut_dies_of_is_judged_again_without(tmp_path: Path) -> None:
    shortcut = (f"{__name__}:dies_of_sigbus",)
    spec = harness_of(tmp_path).spec(f"{wal_native.SCENARIOS}:nothing")
    with court(spec, shortcut) as judges:
        assert judges.wrong_with(EMPTY) == ""


def test_an_engine_whose_own_files_are_virtual_elsewhere_passes_when_it_is_recorded(tmp_path: Path) -> None:
    if recording.means() is not None:
        suite = WalNative()
        suite.test_power_lost_without_sync_takes_back_a_suffix_and_sync_ends_that(harness_of(tmp_path))


def test_an_engine_that_keeps_nothing_is_found_out(tmp_path: Path) -> None:
    if recording.means() is not None:
        with pytest.raises(AssertionError, match="power lost at call"):
            WalNative().test_power_lost_at_any_call_keeps_what_was_acknowledged(NativeHarness(MemoryWal, str(tmp_path)))


def test_a_process_that_keeps_nothing_is_found_out_when_it_is_killed(tmp_path: Path) -> None:
    with pytest.raises((AssertionError, KeyError)):
        WalNative().test_sigkill_at_any_moment_takes_back_nothing_that_was_acknowledged(
            NativeHarness(MemoryWal, str(tmp_path))
        )


def test_without_means_the_row_is_printed_as_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MEANS", {})
    with pytest.raises(pytest.skip.Exception, match=r"^not proven here: .*un-synced writes .*: none of"):
        WalNative().test_power_lost_at_any_call_keeps_what_was_acknowledged(harness_of(tmp_path))


def test_what_a_suite_leaves_to_the_engine_is_not_proven_until_it_is_overridden(tmp_path: Path) -> None:
    suite, harness = WalNative(), harness_of(tmp_path)
    for check in (
        suite.test_a_flipped_bit_is_reported_or_harms_nothing,
        suite.test_a_full_disk_fails_what_does_not_fit_until_there_is_space,
        suite.test_after_a_failed_sync_nothing_is_appended_now_or_after_a_restart,
    ):
        with pytest.raises(pytest.skip.Exception, match=r"^not proven here: "):
            check(harness)


def test_the_rows_that_may_be_unproven_are_those_of_the_decision() -> None:
    assert re.findall(r"^\| `([a-z ]+)` \|", ADR.read_text(), re.MULTILINE) == list(wal_native.UNPROVEN)
    with pytest.raises(KeyError):
        wal_native.not_proven("order", "there is no time")
