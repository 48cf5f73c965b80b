"""Has crash states judged in children, one after the other in one child while it lives."""

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

from stelae.testing.recorder.judge import JudgeAnswer, JudgeRequest
from stelae.testing.recorder.replay import ReplayState
from stelae.testing.recorder.scenario import Spec

MODULE = "stelae.testing.recorder.judge"
ANSWER_SECONDS_MAX = 120
"""A judge that takes longer hangs: opening a log of some hundred entries takes milliseconds, or a second in a child."""

MEMORY = "/dev/shm"
MEMORY_BYTES_MIN = 256 << 20
"""A state has some hundred kilobytes, and a judge copies it; below this the disk is used."""


def child_environment() -> dict[str, str]:
    """The environment of a child that imports what this process can import."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


class Judge:
    """One child that judges, started when it is needed and again when it died. Use it in a ``with`` block."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.end()

    def wrong_with(self, state: ReplayState, folder: str) -> str:
        """What is wrong with a state, which is written below ``folder`` and removed again; empty if nothing is."""
        root = tempfile.mkdtemp(dir=folder)
        try:
            state.image.write(f"{root}/0")
            return self._ask(JudgeRequest(root, state.stage))
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def end(self) -> int:
        """End the child if there is one; return how it ended."""
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

    def _ask(self, request: JudgeRequest) -> str:
        child = self._started()
        assert child.stdin is not None and child.stdout is not None
        with suppress(BrokenPipeError):  # it died before it read anything, and its output has ended
            child.stdin.write(msgspec.json.encode(request) + b"\n")
            child.stdin.flush()
        if not select.select([child.stdout], [], [], ANSWER_SECONDS_MAX)[0]:
            child.kill()
            self.end()
            return f"the engine was not done with it after {ANSWER_SECONDS_MAX} s"
        line = child.stdout.readline()
        if not line:
            code = self.end()
            return f"the process that opened it died of {signal.Signals(-code).name if code < 0 else f'code {code}'}"
        return msgspec.json.decode(line, type=JudgeAnswer).wrong

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            command = [sys.executable, "-m", MODULE, msgspec.json.encode(self._spec).decode()]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._child = subprocess.Popen(command, env=child_environment(), **pipes)  # type: ignore[call-overload]
        return self._child


@contextmanager
def court(spec: Spec, shortcut: tuple[str, ...]) -> Iterator[Court]:
    """Judges for one scenario: a quick one if there is a shortcut, and one without for what it finds wrong."""
    quick = msgspec.structs.replace(spec, setup=(*spec.setup, *shortcut))
    scratch = tempfile.TemporaryDirectory(prefix="stelae-states-", dir=_memory())
    with Judge(quick) as first, Judge(spec) as last, scratch as folder:
        yield Court(first if shortcut else last, last, folder)


def _memory() -> str | None:
    """Where files are kept in memory, if anywhere: what a state holds counts as synced, so no disk need say so."""
    return MEMORY if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES_MIN else None


class Court:
    """Two judges and a place for what they judge."""

    def __init__(self, first: Judge, last: Judge, folder: str) -> None:
        self._first = first
        self._last = last
        self._folder = folder

    def wrong_with(self, state: ReplayState) -> str:
        """What is wrong with a state; empty if nothing is."""
        wrong = self._first.wrong_with(state, self._folder)
        if wrong and self._first is not self._last:
            wrong = self._last.wrong_with(state, self._folder)
        return wrong
