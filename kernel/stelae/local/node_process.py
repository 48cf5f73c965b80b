"""One node as a process of this machine."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId

STOP_TIMEOUT_S = 10.0
"""How long an orderly stop may take before the process is killed."""

LOG_TAIL_LINES = 12


Role: TypeAlias = Literal["master", "tserver"]
"""What a node runs as: the command that runs it."""


class NodeExited(StelaeError):
    """A node process ended by itself; the message holds the last lines of its log."""

    code = "NODE_EXITED"


class NodeProcess:
    """Starts, kills and stops one node.

    Args:
        name: for people.
        node_id: its uuid.
        address: ``host:port`` it listens on.
        directory: holds ``node.toml``, ``data/`` and ``node.log``.
        role: what it runs as.
    """

    def __init__(self, name: str, node_id: NodeId, address: str, directory: Path, role: Role = "tserver") -> None:
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
        """What the process printed."""
        return self.directory / "node.log"

    @property
    def _held_path(self) -> Path:
        """Locked while a process that was started here runs; its content is the process id."""
        return self.directory / "process.lock"

    @property
    def pid(self) -> int | None:
        """Process id, while it is ours and runs."""
        return self._process.pid if self._process is not None else None

    def start(self, *, outlive: bool = False) -> None:
        """Start the process.

        Unless it is to ``outlive`` us, it ends when the pipe to its standard input closes, that
        is, however we end: no node is left behind.
        """
        command = [sys.executable, "-m", "stelae", self.role, "run", "--config"]
        command.append(str(self.config_path))
        if not outlive:
            command.append("--until-stdin-closes")
        with self.log_path.open("ab") as log, self._held_path.open("a+b") as held:
            # The process inherits this lock and keeps it to its end: it is known to run before it says so itself.
            with suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.truncate(0)
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if outlive else subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                pass_fds=(held.fileno(),),
            )
            held.write(str(self._process.pid).encode())

    def check(self) -> None:
        """See that the process still runs.

        Raises:
            NodeExited: it does not.
        """
        if self._process is not None and self._process.poll() is not None:
            how = _fate(self._process.returncode)
            raise NodeExited(f"{self.name} {how}; its log {self.log_path} ends with:\n{self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Nothing is flushed."""
        if self._process is None:
            return
        self._process.kill()
        self._reap()

    def ask_to_stop(self) -> None:
        """Ask for an orderly stop; ``wait`` waits for it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int | None:
        """Wait for the end after ``ask_to_stop``; kills the process when it takes too long."""
        if self._process is None:
            return None
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._reap()

    def running_pid(self) -> int | None:
        """Process id of the node that was started here or holds the directory, by whomever; else ``None``."""
        return _holder(self._held_path) or _holder(self.directory / "data" / "lock")

    def log_tail(self) -> str:
        """The last lines that the process printed."""
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


def _fate(code: int) -> str:
    """How a process ended, as ``subprocess`` tells it."""
    if code >= 0:
        return f"ended with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was ended by signal {-code} ({known.get(-code, 'unknown')})"


def _holder(lock: Path) -> int | None:
    """Process id in a file that some process has locked."""
    try:
        with lock.open("r+b") as file:
            text = file.read().strip()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return int(text) if text.isdigit() else None
    except OSError:
        return None
    return None
