"""Starts, stops and kills one node as a process of this machine."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, TypeAlias

from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId

STOP_TIMEOUT_S = 10.0
"""Time for an orderly stop, in seconds. After it, the process is killed."""

LOCK_TRIES = 50
"""How often a start tries to lock the file of the process: a process that asks who runs locks it for a moment."""

LOCK_PAUSE_S = 0.02
"""Seconds between two of these tries."""

OFFLINE = "offline"
"""Follows the process id in the lock of a data directory if the process is a command for a stopped node."""

LOG_TAIL_LINES = 12
"""Number of the last lines of a node's log that errors show."""

NodeRole: TypeAlias = Literal["master", "tserver"]
"""The command that runs a node: ``stelae master run`` or ``stelae tserver run``."""


class NodeExited(StelaeError):
    """A node process ended by itself. The message has the last lines of its log."""

    code = "NODE_EXITED"


class NodeRuns(StelaeError):
    """A process of the node runs already."""

    code = "NODE_RUNS"


class NodeProcess:
    """One node.

    Args:
        name: for people.
        node_id: uuid of the node.
        address: ``host:port`` on which the node listens.
        directory: folder with ``node.toml``, ``data/`` and ``node.log``.
        role: the command that runs the node.
    """

    def __init__(self, name: str, node_id: NodeId, address: str, directory: Path, role: NodeRole = "tserver") -> None:
        self.role = role
        self.name = name
        self.node_id = node_id
        self.address = address
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def config_path(self) -> Path:
        """The node's ``node.toml``."""
        return self.directory / "node.toml"

    @property
    def log_path(self) -> Path:
        """The file with the output of the process."""
        return self.directory / "node.log"

    @property
    def _lock_path(self) -> Path:
        """A file that is locked while a process that was started here runs. It has the process id."""
        return self.directory / "process.lock"

    @property
    def pid(self) -> int | None:
        """Process id, if this object has started the process and it was not reaped yet."""
        return self._process.pid if self._process is not None else None

    def start(self, *, outlive: bool = False) -> None:
        """Start the process.

        Without ``outlive``, the process ends when the pipe to its standard input closes. So it ends however this
        process ends, and no node is left behind.

        Raises:
            NodeRuns: a process that was started here runs already, perhaps one that another command has started since
                this one looked. No process was started.
            OSError: the process cannot be started, or its id cannot be written. None runs.
        """
        command = [sys.executable, "-m", "stelae", self.role, "run", "--config"]
        command.append(str(self.config_path))
        if not outlive:
            command.append("--until-stdin-closes")
        with self.log_path.open("ab") as log, self._lock_path.open("a+b") as lock:
            # The process inherits this lock and keeps it until its end. So it counts as running from its start, before
            # it has locked its data directory.
            if not _lock(lock):
                raise NodeRuns(f"{self.name} runs already: a process has {self._lock_path} locked")
            with _undisturbed():
                self._process = self._start(command, log, lock, outlive=outlive)

    def _start(self, command: list[str], log: IO[bytes], lock: IO[bytes], *, outlive: bool) -> subprocess.Popen[bytes]:
        lock.truncate(0)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if outlive else subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            pass_fds=(lock.fileno(),),
        )
        try:
            lock.write(str(process.pid).encode())
            lock.flush()
        except OSError:  # On a full disk, for example. No other command would find the process.
            process.kill()
            process.wait()
            raise
        return process

    def check(self) -> None:
        """Check that the process still runs, if this object has started it.

        Raises:
            NodeExited: the process does not run any more.
        """
        if self._process is not None and self._process.poll() is not None:
            how = _exit_text(self._process.returncode)
            raise NodeExited(f"{self.name} {how}; its log {self.log_path} ends with:\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait for its end. The node flushes nothing."""
        if self._process is None:
            return
        self._process.kill()
        self._reap()

    def ask_to_stop(self) -> None:
        """Ask the process for an orderly stop. ``wait`` waits for it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int | None:
        """Wait for the end of the process after ``ask_to_stop``; return its exit code. Kills it after
        ``STOP_TIMEOUT_S``."""
        if self._process is None:
            return None
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._reap()

    def running_pid(self) -> int | None:
        """Return the process id of the node, whichever process has started it; ``None``: it does not run."""
        return _locking_pid(self._lock_path) or _locking_pid(self._data_lock)

    def offline_pid(self) -> int | None:
        """Return the process id of a command for a stopped node that uses the data of this one; ``None``: none does."""
        return _locking_pid(self._data_lock, OFFLINE)

    @property
    def _data_lock(self) -> Path:
        return self.directory / "data" / "lock"

    def log_tail(self) -> str:
        """Return the last lines of the process's output."""
        try:
            text = self.log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-LOG_TAIL_LINES:])

    def _reap(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        code = process.wait()
        if process.stdin is not None:
            process.stdin.close()
        return code


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM afterwards. No command finds a process that was started but whose id is not written."""
    if threading.current_thread() is not threading.main_thread():  # Signals are handled in the main thread.
        yield
        return
    came: list[int] = []
    known = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    delayed = {number: before for number, before in known.items() if before not in (signal.SIG_IGN, None)}
    for number in delayed:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, before in delayed.items():
            signal.signal(number, before)
        for one in came:
            before = delayed[signal.Signals(one)]
            if callable(before):  # Not raised again: a loop that handles the signal has received it already.
                before(one, None)
            else:
                signal.raise_signal(one)


def _exit_text(code: int) -> str:
    """Return how a process ended, from the return code of ``subprocess``."""
    if code >= 0:
        return f"ended with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was ended by signal {-code} ({known.get(-code, 'unknown')})"


def _lock(file: IO[bytes]) -> bool:
    """Lock a file; return whether that succeeded. The lock of a process that only asks who runs is waited for."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
    return False


def _locking_pid(lock: Path, kind: str = "") -> int | None:
    """Return the process id in a file that a process of a kind has locked; ``None``: the file is not locked by one.

    The lock for the question is shared: otherwise two questions at once would each take the other for the process, and
    its id is perhaps that of another program by now."""
    try:
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:  # Read afterwards: before, it may be the id of an earlier process.
                text, _, found = file.read().decode("ascii", "replace").strip().partition(" ")
                return int(text) if text.isdigit() and found == kind else None
    except OSError:
        return None
    return None
