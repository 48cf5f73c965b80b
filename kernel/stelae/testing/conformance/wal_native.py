"""Conformance checks for log engines whose library does its own input and output, outside of the virtual disk.

The checks kill the engine's process and cut its files. If its calls can be recorded (``stelae.testing.recorder``), they
also lose power at any call: what was not synced by then is kept, lost, torn and reordered. What cannot be proven on a
machine is skipped as *not proven here*. ADR 22 decides which rows may be skipped; ``UNPROVEN`` lists them."""

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
from stelae.testing.conformance.wal_cut_files import check_cuts, first_half
from stelae.testing.native_harness import NativeHarness
from stelae.testing.recorder.record import METHODS, Recording, available_method, record
from stelae.testing.recorder.replay import ReplayState, states
from stelae.testing.recorder.scenario import Spec
from stelae.testing.recorder.state_checker import child_environment, state_checker
from stelae.testing.wal_model import entries, intact

UNPROVEN = {
    "power loss": "un-synced writes that are lost, torn or reordered (W2, W3, W6; durability rules 4, 5 and 6)",
    "damage": "flipped bits and cut files (W4)",
    "full disk": "a disk without space (W8)",
    "failed sync": "a sync that fails (W8; durability rule 7)",
}
"""The rows that may be printed as not proven, and what each of them checks. No other row may be."""

SCENARIOS = "stelae.testing.recorder.scenario"
HISTORIES = (1, 2)
RECOVERIES = 4
KILLS = (40, 65, 90, 115)
WRONG_MAX = 3


def not_proven(row: str, why: str) -> NoReturn:
    """Skip a check as not proven here, with the reason. It does not count as passed."""
    pytest.skip(f"not proven here: {UNPROVEN[row]}: {why}")


class WalNative(WalBasics):
    """Checks on a real disk. The fixture ``harness`` is a :class:`NativeHarness`, empty."""

    # -- the process dies ------------------------------------------------------------------------

    def test_sigkill_at_any_moment_loses_no_acknowledged_entry(self, harness: NativeHarness) -> None:
        acknowledged = 0
        for count in KILLS:
            acknowledged = append_until_killed(harness, acknowledged, count)
            engine = harness.open()
            found = intact(engine)
            assert found.last.index >= acknowledged
            assert found.held == list(entries(1, found.last.index, size_bytes=300))
            acknowledged = found.last.index
            engine.close()

    def test_the_commit_hint_of_acknowledged_groups_survives_a_crash(self, harness: NativeHarness) -> None:
        check_hints(harness)

    # -- power is lost ---------------------------------------------------------------------------

    def test_power_lost_at_any_call_keeps_acknowledged_entries(self, harness: NativeHarness) -> None:
        self._lose_power(harness, "every_operation_and_restarts")

    def test_power_lost_may_lose_a_suffix_of_unsynced_entries_but_none_before_a_sync(
        self, harness: NativeHarness
    ) -> None:
        self._lose_power(harness, "unsynced_commits", int(always_synced(harness)))

    def test_power_lost_while_a_name_is_reused_brings_nothing_back(self, harness: NativeHarness) -> None:
        self._lose_power(harness, "reused_name_and_restart")

    def test_power_lost_while_setting_aside_leaves_the_log_or_its_complete_copy(self, harness: NativeHarness) -> None:
        self._lose_power(harness, "log_set_aside", also=f"{SCENARIOS}:check_quarantine")

    def test_power_lost_in_random_histories_loses_nothing_and_brings_nothing_back(self, harness: NativeHarness) -> None:
        for seed in HISTORIES:
            self._lose_power(harness, "random_history", seed, int(always_synced(harness)))

    def test_power_lost_during_recovery_loses_nothing(self, harness: NativeHarness) -> None:
        recording = recorded(harness, spec := harness.spec(f"{SCENARIOS}:every_operation_and_restarts"))
        found = [state for state in states(recording, 1) if state.stage.done or state.stage.begun]
        checked = 0
        with state_checker(spec, harness.shortcut) as checker:
            for before in found[:: max(1, len(found) // RECOVERIES)]:
                again = recorded(harness, harness.spec(f"{SCENARIOS}:no_steps"), before)
                for state in states(again, before.calls):
                    checked += 1
                    after = msgspec.structs.replace(state, stage=before.stage)
                    wrong = checker.wrong_with(after)
                    assert not wrong, f"power lost after {before.calls} calls, and after {state.calls} more: {wrong}"
        assert checked > 3 * RECOVERIES

    def _lose_power(self, harness: NativeHarness, scenario: str, *arguments: int, also: str = "") -> None:
        spec = msgspec.structs.replace(harness.spec(f"{SCENARIOS}:{scenario}", *arguments), also=also)
        recording = recorded(harness, spec)
        checked, wrong = 0, []
        with state_checker(spec, harness.shortcut) as checker:
            for state in states(recording, 1):
                checked += 1
                if problem := checker.wrong_with(state):
                    stage = f"step {state.stage.done} {'under way' if state.stage.begun else 'next'}"
                    wrong.append(f"power lost at call {state.calls} of {len(recording.calls)}, {stage}: {problem}")
                assert len(wrong) < WRONG_MAX, "\n".join(wrong)
        assert not wrong, "\n".join(wrong)
        assert checked > len(spec.steps())

    # -- damaged files -------------------------------------------------------------------------------

    def test_a_cut_file_of_a_closed_log_is_reported(self, harness: NativeHarness) -> None:
        check_cuts(harness, first_half)

    # -- checks that the engine's own tests override -----------------------------------------------

    def test_a_flipped_bit_is_reported_or_harms_nothing(self, harness: NativeHarness) -> None:
        not_proven("damage", "the suite does not know the engine's files; override this check")

    def test_a_full_disk_fails_groups_that_do_not_fit_until_there_is_space(self, harness: NativeHarness) -> None:
        not_proven("full disk", "the suite cannot limit the engine's own writes; override this check")

    def test_after_a_failed_sync_nothing_is_appended_now_or_after_a_restart(self, harness: NativeHarness) -> None:
        not_proven("failed sync", "the suite cannot fail the engine's own syncs; override this check")


def recorded(harness: NativeHarness, spec: Spec, before: ReplayState | None = None) -> Recording:
    """Run a scenario in a child process and record it, in an empty directory or in the state that a crash left."""
    if available_method() is None:
        not_proven("power loss", f"none of {', '.join(METHODS)} is available to record what the engine writes")
    root = os.path.realpath(tempfile.mkdtemp(dir=harness.root, prefix="recorded-"))
    if before is None:
        os.mkdir(f"{root}/0")
    else:
        before.image.write(f"{root}/0")
    marks = f"{root}/marks"
    command = [sys.executable, "-m", "stelae.testing.recorder.scenario_process", _text(spec), f"{root}/0/wals", marks]
    return record(command, child_environment(), f"{root}/0", marks, harness.mapped)


def append_until_killed(harness: NativeHarness, last: int, count: int) -> int:
    """Let a process append, and kill it; return the last index that it acknowledged.

    Args:
        last: index of the last entry of the log.
        count: acknowledgements to wait for. The process goes on appending until it is killed.
    """
    spec = _text(harness.spec(f"{SCENARIOS}:no_steps"))
    command = [sys.executable, "-m", "stelae.testing.recorder.append_process", spec, harness.directory, str(last)]
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
