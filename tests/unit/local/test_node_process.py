"""A node of a local cluster as a process: found and stopped by whoever looks into its folder, at any moment."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import lock_directory
from stelae.local.node_process import NodeExited, NodeProcess, NodeRuns
from stelae.machine.files import RealFiles
from stelae.spi.ids import NodeId

NODE = NodeId("a" * 32)


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeProcess:
    """A node whose process takes for ever to come up: it has neither a directory nor a lock in it."""
    script = tmp_path / "never_up"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return NodeProcess("tserver-1", NODE, "127.0.0.1:1", tmp_path)


def test_a_process_that_is_still_starting_is_known_to_run_by_others(sleeper: NodeProcess, tmp_path: Path) -> None:
    somebody = NodeProcess("tserver-1", NODE, "127.0.0.1:1", tmp_path)
    assert somebody.running_pid() is None
    sleeper.start(outlive=True)
    try:
        assert somebody.running_pid() == sleeper.pid is not None
    finally:
        sleeper.kill()
    assert somebody.running_pid() is None


def test_a_process_that_was_started_again_is_known_by_its_new_id(sleeper: NodeProcess, tmp_path: Path) -> None:
    somebody = NodeProcess("tserver-1", NODE, "127.0.0.1:1", tmp_path)
    seen = []
    for _ in range(2):
        sleeper.start()
        try:
            seen.append(somebody.running_pid())
            assert seen[-1] == sleeper.pid
        finally:
            sleeper.kill()
    assert len(set(seen)) == 2


def test_a_node_that_two_commands_start_at_once_is_started_by_one_and_known_by_its_id(
    sleeper: NodeProcess, tmp_path: Path
) -> None:
    """Both found that it did not run. The second wrote its id after that of the first, and the two together were taken
    for one id: `stelae cluster down` then sent its signals to another process, or to none."""
    second = NodeProcess("tserver-1", NODE, "127.0.0.1:1", tmp_path)
    assert second.running_pid() is None
    sleeper.start(outlive=True)
    try:
        with pytest.raises(NodeRuns, match="tserver-1 runs already"):
            second.start(outlive=True)
        assert second.pid is None
        assert second.running_pid() == sleeper.pid is not None
    finally:
        second.kill()
        sleeper.kill()


def test_a_look_at_the_moment_of_the_start_does_not_hide_the_process(
    sleeper: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that asks who runs locks the file for a moment. A start at this moment went on without the lock."""
    somebody = NodeProcess("tserver-1", NODE, "127.0.0.1:1", tmp_path)
    look = (tmp_path / "process.lock").open("a+b")
    fcntl.flock(look, fcntl.LOCK_EX)
    monkeypatch.setattr(time, "sleep", lambda seconds: look.close())
    sleeper.start(outlive=True)
    look.close()
    try:
        assert somebody.running_pid() == sleeper.pid is not None
    finally:
        sleeper.kill()


def test_two_questions_at_once_do_not_take_each_other_for_the_process(
    sleeper: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one got the id of a process that had ended. `stelae cluster down` could have killed another one."""
    sleeper.start(outlive=True)
    sleeper.kill()
    assert (tmp_path / "process.lock").read_text()
    first, second = (NodeProcess("tserver-1", NODE, "127.0.0.1:1", tmp_path) for _ in range(2))
    answers: list[int | None] = []
    flock = fcntl.flock

    def ask_meanwhile(file: int, how: int) -> None:
        flock(file, how)
        if not answers:
            answers.append(-1)
            answers.append(second.running_pid())

    monkeypatch.setattr(fcntl, "flock", ask_meanwhile)
    assert [first.running_pid(), *answers[1:]] == [None, None]


def test_a_command_for_a_stopped_node_is_not_taken_for_the_node(tmp_path: Path) -> None:
    """`stelae cluster down` killed a conversion of the log, and `stelae cluster up` waited for a node that it had not
    started. A node that was started by hand is one: it has the lock of its data directory, too."""
    node = NodeProcess("tserver-1", NODE, "127.0.0.1:1", tmp_path)
    layout = DirectoryLayout(str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    for offline, found in ((True, (None, 4711)), (False, (4711, None)), (True, (None, 4711))):
        lock = lock_directory(RealFiles(), layout, 4711, offline=offline)
        assert (node.running_pid(), node.offline_pid()) == found
        lock.release()
        assert (node.running_pid(), node.offline_pid()) == (None, None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_is_known_although_its_start_was_interrupted(
    sleeper: NodeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """After Ctrl-C, `stelae cluster down` stopped the nodes that it knew, and one more came up later."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    start = subprocess.Popen

    def popen(*command: Any, **options: Any) -> Any:
        process = start(*command, **options)
        signal.raise_signal(number)
        return process

    before = signal.signal(number, interrupt)
    monkeypatch.setattr(subprocess, "Popen", popen)
    try:
        with pytest.raises(KeyboardInterrupt):
            sleeper.start(outlive=True)
        assert signal.getsignal(number) is interrupt
        assert NodeProcess("tserver-1", NODE, "127.0.0.1:1", tmp_path).running_pid() == sleeper.pid is not None
    finally:
        signal.signal(number, before)
        sleeper.kill()


def test_a_process_whose_id_cannot_be_written_is_not_left_behind(sleeper: NodeProcess, tmp_path: Path) -> None:
    """On a full disk the node ran, `stelae cluster status` did not see it, and `stelae cluster down` did not end it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            sleeper.start(outlive=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sleeper.pid is None
    with (tmp_path / "process.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # A process that runs would have it locked.


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGSEGV, r"signal 11 \(SIGSEGV\)"), (signal.SIGKILL, r"signal 9 \(SIGKILL\)")]
)
def test_a_process_that_ended_by_itself_is_missed_with_the_signal_that_ended_it(
    sleeper: NodeProcess, number: signal.Signals, words: str
) -> None:
    sleeper.start()
    sleeper.check()
    assert sleeper.pid is not None
    os.kill(sleeper.pid, number)
    try:
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(NodeExited, match=f"tserver-1 was ended by {words}"):
            sleeper.check()
    finally:
        sleeper.kill()
