"""Checks crash states in child processes. One child checks one state after the other until it dies."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

import msgspec

from stelae.testing.recorder.check_process import CheckAnswer, CheckRequest
from stelae.testing.recorder.replay import ReplayState
from stelae.testing.recorder.scenario import Spec

MODULE = "stelae.testing.recorder.check_process"
ANSWER_SECONDS_MAX = 120
"""The timeout of one check. Opening a log of some hundred entries takes milliseconds, or a second in a new child."""

MEMORY = "/dev/shm"
MEMORY_BYTES_MIN = 256 << 20
"""With less free space in ``MEMORY``, states are written to the disk. A state has some hundred kilobytes."""


def child_environment() -> dict[str, str]:
    """Return the environment of a child that can import what this process can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


class CheckProcess:
    """A child that checks states, started when it is needed, and again after it died. Use it in a ``with`` block."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.end()

    def wrong_with(self, state: ReplayState, folder: str) -> str:
        """Write a state below ``folder``, check it, and remove it. Return what is wrong with it, or an empty text."""
        root = tempfile.mkdtemp(dir=folder)
        try:
            state.image.write(f"{root}/0")
            return self._ask(CheckRequest(root, state.stage))
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def end(self) -> int:
        """End the child, if there is one; return its exit code."""
        child, self._child = self._child, None
        if child is None:
            return 0
        assert child.stdin is not None and child.stdout is not None
        try:
            child.communicate(timeout=ANSWER_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
        return child.returncode

    def _ask(self, request: CheckRequest) -> str:
        child = self._started()
        assert child.stdin is not None and child.stdout is not None
        with suppress(BrokenPipeError):  # The child died before it read the request; its output has ended.
            child.stdin.write(msgspec.json.encode(request) + b"\n")
            child.stdin.flush()
        if not select.select([child.stdout], [], [], ANSWER_SECONDS_MAX)[0]:
            child.kill()
            self.end()
            return f"the engine did not finish within {ANSWER_SECONDS_MAX} s"
        line = child.stdout.readline()
        if not line:
            code = self.end()
            cause = signal.Signals(-code).name if code < 0 else f"code {code}"
            return f"the process that opened the state died of {cause}"
        return msgspec.json.decode(line, type=CheckAnswer).wrong

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            command = [sys.executable, "-m", MODULE, msgspec.json.encode(self._spec).decode()]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._child = subprocess.Popen(command, env=child_environment(), **pipes)  # type: ignore[call-overload]
        return self._child


@contextmanager
def state_checker(spec: Spec, shortcut: tuple[str, ...]) -> Iterator[StateChecker]:
    """Make a checker for one scenario.

    With a ``shortcut`` (see ``NativeHarness``), a state that fails with it is checked again without it.
    """
    quick = msgspec.structs.replace(spec, setup=(*spec.setup, *shortcut))
    scratch = tempfile.TemporaryDirectory(prefix="stelae-states-", dir=_memory())
    with CheckProcess(quick) as first, CheckProcess(spec) as last, scratch as folder:
        yield StateChecker(first if shortcut else last, last, folder)


def _memory() -> str | None:
    """Return a directory in memory, if there is one. A state counts as synced, so it needs no disk."""
    return MEMORY if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN else None


class StateChecker:
    """Checks states with a quick child, and states that fail once more with another child."""

    def __init__(self, first: CheckProcess, last: CheckProcess, folder: str) -> None:
        self._first = first
        self._last = last
        self._folder = folder

    def wrong_with(self, state: ReplayState) -> str:
        """Return what is wrong with a state, or an empty text."""
        wrong = self._first.wrong_with(state, self._folder)
        if wrong and self._first is not self._last:
            wrong = self._last.wrong_with(state, self._folder)
        return wrong
