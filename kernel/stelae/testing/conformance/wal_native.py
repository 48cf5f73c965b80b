"""A log engine whose library does its own input and output, and so cannot run on the virtual disk.

Its process is killed and its files are cut, everywhere. Where its calls can be recorded
(``stelae.testing.recorder``), it also loses power at any of them, and what was not synced by then is kept, lost, torn
and reordered. What cannot be proven on a machine is skipped as *not proven here*; which rows may be is decided in
ADR 22, and ``UNPROVEN`` says the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import NoReturn

import msgspec
import pytest

from stelae.testing.conformance.wal_basics import WalBasics, always_synced, check_hints
from stelae.testing.conformance.wal_closed import check_cuts, half_of_what_is_used
from stelae.testing.recorder.court import child_environment, court
from stelae.testing.recorder.record import MEANS, Recording, means, record
from stelae.testing.recorder.replay import ReplayState, states
from stelae.testing.recorder.scenario import Spec
from stelae.testing.wal_model import entries, intact
from stelae.testing.wal_native import NativeHarness

UNPROVEN = {
    "power loss": "un-synced writes that are lost, torn or reordered (W2, W3, W6; durability rules 4, 5 and 6)",
    "damage": "flipped bits and cut files (W4)",
    "full disk": "a disk without space (W8)",
    "failed sync": "a sync that fails (W8; durability rule 7)",
}
"""The rows that may be printed as not proven, and what they are about. No other row may be."""

SCENARIOS = "stelae.testing.recorder.scenario"
HISTORIES = (1, 2)
RECOVERIES = 4
KILLS = (40, 65, 90, 115)
WRONG_MAX = 3


def not_proven(row: str, why: str) -> NoReturn:
    """Print a row as not proven here, and why. It does not count as passed."""
    pytest.skip(f"not proven here: {UNPROVEN[row]}: {why}")


class WalNative(WalBasics):
    """Checks on a real disk; the fixture ``harness`` is a :class:`NativeHarness`, empty."""

    # -- the process dies ------------------------------------------------------------------------

    def test_sigkill_at_any_moment_takes_back_nothing_that_was_acknowledged(self, harness: NativeHarness) -> None:
        acknowledged = 0
        for count in KILLS:
            acknowledged = live_and_die(harness, acknowledged, count)
            engine = harness.open()
            found = intact(engine)
            assert found.last.index >= acknowledged
            assert found.held == list(entries(1, found.last.index, size_bytes=300))
            acknowledged = found.last.index
            engine.close()

    def test_the_commit_hint_of_what_was_acknowledged_outlives_the_process(self, harness: NativeHarness) -> None:
        check_hints(harness)

    # -- power is lost ---------------------------------------------------------------------------

    def test_power_lost_at_any_call_keeps_what_was_acknowledged(self, harness: NativeHarness) -> None:
        self._lose_power(harness, "full_life")

    def test_power_lost_without_sync_takes_back_a_suffix_and_sync_ends_that(self, harness: NativeHarness) -> None:
        self._lose_power(harness, "unsynced_life", int(always_synced(harness)))

    def test_power_lost_while_a_name_is_used_again_brings_nothing_back(self, harness: NativeHarness) -> None:
        self._lose_power(harness, "name_used_again")

    def test_power_lost_while_setting_aside_leaves_the_log_here_or_whole_there(self, harness: NativeHarness) -> None:
        self._lose_power(harness, "set_aside_life", also=f"{SCENARIOS}:check_quarantine")

    def test_power_lost_in_random_histories_loses_nothing_and_brings_nothing_back(self, harness: NativeHarness) -> None:
        for seed in HISTORIES:
            self._lose_power(harness, "history", seed, int(always_synced(harness)))

    def test_power_lost_while_recovering_loses_nothing_either(self, harness: NativeHarness) -> None:
        lived = recorded(harness, spec := harness.spec(f"{SCENARIOS}:full_life"))
        found = [state for state in states(lived, 1) if state.stage.done or state.stage.begun]
        judged = 0
        with court(spec, harness.shortcut) as judges:
            for before in found[:: max(1, len(found) // RECOVERIES)]:
                again = recorded(harness, harness.spec(f"{SCENARIOS}:nothing"), before)
                for state in states(again, before.calls):
                    judged += 1
                    after = msgspec.structs.replace(state, stage=before.stage)
                    wrong = judges.wrong_with(after)
                    assert not wrong, f"power lost after {before.calls} calls, and after {state.calls} more: {wrong}"
        assert judged > 3 * RECOVERIES

    def _lose_power(self, harness: NativeHarness, scenario: str, *arguments: int, also: str = "") -> None:
        spec = msgspec.structs.replace(harness.spec(f"{SCENARIOS}:{scenario}", *arguments), also=also)
        recording = recorded(harness, spec)
        judged, wrong = 0, []
        with court(spec, harness.shortcut) as judges:
            for state in states(recording, 1):
                judged += 1
                if verdict := judges.wrong_with(state):
                    stage = f"step {state.stage.done} {'under way' if state.stage.begun else 'next'}"
                    wrong.append(f"power lost at call {state.calls} of {len(recording.calls)}, {stage}: {verdict}")
                assert len(wrong) < WRONG_MAX, "\n".join(wrong)
        assert not wrong, "\n".join(wrong)
        assert judged > len(spec.steps())

    # -- its files change behind its back -----------------------------------------------------------

    def test_what_is_cut_from_a_closed_log_is_missed(self, harness: NativeHarness) -> None:
        check_cuts(harness, half_of_what_is_used)

    # -- what an engine's own tests have to show ---------------------------------------------------

    def test_a_flipped_bit_is_reported_or_harms_nothing(self, harness: NativeHarness) -> None:
        not_proven("damage", "the suite does not know the engine's files; show it in a check of this name")

    def test_a_full_disk_fails_what_does_not_fit_until_there_is_space(self, harness: NativeHarness) -> None:
        not_proven("full disk", "the suite cannot limit the engine's own writes; show it in a check of this name")

    def test_after_a_failed_sync_nothing_is_appended_now_or_after_a_restart(self, harness: NativeHarness) -> None:
        not_proven("failed sync", "the suite cannot fail the engine's own syncs; show it in a check of this name")


def recorded(harness: NativeHarness, spec: Spec, before: ReplayState | None = None) -> Recording:
    """Let a child live through a scenario, and record it: in an empty directory, or in what a crash left."""
    if means() is None:
        not_proven("power loss", f"none of {', '.join(MEANS)} is available to record what the engine writes")
    root = os.path.realpath(tempfile.mkdtemp(dir=harness.root, prefix="recorded-"))
    if before is None:
        os.mkdir(f"{root}/0")
    else:
        before.image.write(f"{root}/0")
    marks = f"{root}/marks"
    command = [sys.executable, "-m", "stelae.testing.recorder.live", _text(spec), f"{root}/0/wals", marks]
    return record(command, child_environment(), f"{root}/0", marks, harness.mapped)


def live_and_die(harness: NativeHarness, written: int, count: int) -> int:
    """Let a process append, and kill it once it has acknowledged so often; return what it acknowledged.

    Args:
        written: index of the last entry that is there.
        count: acknowledgements to wait for; it goes on appending while it is killed.
    """
    spec = _text(harness.spec(f"{SCENARIOS}:nothing"))
    command = [sys.executable, "-m", "stelae.testing.recorder.endless", spec, harness.directory, str(written)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment()) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(count)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
        assert child.wait() == -signal.SIGKILL
    whole = [line for line in lines if line.endswith(b"\n")]
    assert len(whole) >= count
    return int(whole[-1])


def _text(spec: Spec) -> str:
    return msgspec.json.encode(spec).decode()
