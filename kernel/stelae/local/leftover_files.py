"""Finds orphan files in the directories of stopped nodes, with ``stelae fs check``.

Some leftovers are kept on purpose: what an interrupted copy has fetched and the quarantine, until they are due; the
temporary file of an interrupted replacement, until the next replacement; and the empty directory of a process that has
served copies. The next start of a node removes others, such as those of an interrupted deletion. So a node with others
is started and stopped once more, and checked again. A file that remains is an orphan: nothing ever removes it.

So is all that belongs to a replica that would not start. The masters replace it, and then have it deleted."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import datetime

import msgspec

from stelae.local.node_process import NodeProcess
from stelae.spi.errors import StelaeError

CHECK_TIMEOUT_S = 120.0
START_TIMEOUT_S = 60.0
POLL_S = 0.1
OVERDUE_S = 60.0
"""How long after it is due something may still be there. Nodes look for it at intervals, and machines are busy."""

_UNTIL_DUE = frozenset({"STAGE", "QUARANTINE"})
_UNTIL_REPLACED = "TEMPORARY"
_UNTIL_START = "SERVED"
FAILED = "FAILED"
"""The kind of a replica that would not start."""


class FilesNotChecked(StelaeError, code="FILES_NOT_CHECKED"):
    """``stelae fs check`` did not report what it found in the directory of a node."""


class LeftoverFile(msgspec.Struct, frozen=True, kw_only=True):
    """One of the ``leftovers`` that ``stelae fs check --json`` lists."""

    kind: str
    path: str
    tablet_id: str | None
    size_bytes: int | None
    why: str
    cleaned_by: str | None  #: ``None``: no process will remove it.
    due: str | None  #: ISO time with zone at which it is removed, if its age decides.

    def __str__(self) -> str:
        tablet = f" (tablet {self.tablet_id})" if self.tablet_id else ""
        due = f", due at {self.due}" if self.due else ""
        return f"{self.kind} {self.path}{tablet}: {self.why}; removed by {self.cleaned_by or 'no process'}{due}"


class _Failed(msgspec.Struct, frozen=True):
    tablet_id: str
    reason: str


class _Document(msgspec.Struct, frozen=True):
    leftovers: list[LeftoverFile]
    failed: list[_Failed]


def orphan_files(node: NodeProcess) -> list[LeftoverFile]:
    """Return the orphan files of a node that this object has started. It is stopped at the end. Blocks.

    Raises:
        FilesNotChecked: the command fails, or the node does not start again.
    """
    _stop(node)
    if not unexpected(leftovers(node), time.time()):
        return []
    node.start()
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _listens(node):
        if node.running_pid() is None or time.monotonic() > deadline:
            raise FilesNotChecked(f"{node.name} has not started again; its log ends with:\n{node.log_tail()}")
        time.sleep(POLL_S)
    _stop(node)
    return unexpected(leftovers(node), time.time())


def leftovers(node: NodeProcess) -> list[LeftoverFile]:
    """Return what ``stelae fs check`` lists for a stopped node, and the replicas that would not start.

    Raises:
        FilesNotChecked: the command fails.
    """
    command = [sys.executable, "-m", "stelae", "fs", "check", "--config", str(node.config_path), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=CHECK_TIMEOUT_S)
        document = msgspec.json.decode(done.stdout, type=_Document)
        return [*document.leftovers, *map(_of_failed, document.failed)]
    except subprocess.TimeoutExpired as error:
        raise FilesNotChecked(f"{node.name}: stelae fs check has not ended: {error}") from error
    except msgspec.MsgspecError as error:
        told = done.stderr.decode(errors="replace")
        raise FilesNotChecked(f"{node.name}: stelae fs check failed: {told}") from error


def _of_failed(one: _Failed) -> LeftoverFile:
    return LeftoverFile(
        kind=FAILED,
        path=f"tablet-meta/{one.tablet_id}",
        tablet_id=one.tablet_id,
        size_bytes=None,
        why=f"the replica does not start: {one.reason}",
        cleaned_by=None,
        due=None,
    )


def unexpected(found: Iterable[LeftoverFile], now_s: float) -> list[LeftoverFile]:
    """Return what is not kept on purpose at a wall-clock time, in seconds. Pure."""
    return [one for one in found if not _is_kept(one, now_s)]


def _is_kept(one: LeftoverFile, now_s: float) -> bool:
    if one.cleaned_by is None:
        return False
    if one.kind in _UNTIL_DUE and one.due is not None:
        return now_s <= datetime.fromisoformat(one.due).timestamp() + OVERDUE_S
    # A process keeps its directory for copies that it serves, and the next one removes it. Files in it would be a leak.
    return one.kind == _UNTIL_REPLACED or (one.kind == _UNTIL_START and one.size_bytes == 0)


def _stop(node: NodeProcess) -> None:
    node.ask_to_stop()
    node.wait()


def _listens(node: NodeProcess) -> bool:
    """Return whether a node accepts connections. By then it handles SIGTERM: it completes its start before it stops."""
    host, _, port = node.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=POLL_S).close()
    except OSError:
        return False
    return True
