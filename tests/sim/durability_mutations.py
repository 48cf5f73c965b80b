"""The replacements of the mutants in ``durability_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from stelae.spi.consensus import Role
from stelae.spi.errors import SyncFailed
from tests.sim.mutations import Original

# -- the consensus core ---------------------------------------------------------------------------


def read_before_the_first_entry_commits(original: Original, self: Any, event: Any) -> None:
    lead = self._state.leadership
    if lead is None or self._state.serving:
        original(self, event)
    else:
        lead.reads.add(event.token, self._state.commit)


def answer_with_the_commit_of_before(original: Original, self: Any, token: int, commit: int) -> None:
    original(self, token, max(0, commit - 1))


def forget_what_is_being_replaced(original: Original, self: Any, *failed: Any) -> None:
    self._cache.replacing_from = None
    original(self, *failed)


def old_append_resets_the_timer(original: Original, self: Any, sender: Any, message: Any, entries: Any) -> None:
    if message.term < self._state.term and self._state.role is not Role.LEADER:
        self._state.reset_election_deadline()
    original(self, sender, message, entries)


def old_vote_request_resets_the_timer(original: Original, self: Any, candidate: Any, request: Any) -> None:
    if request.term < self._state.term and self._state.role is not Role.LEADER:
        self._state.reset_election_deadline()
    original(self, candidate, request)


def old_timeout_now_is_obeyed(original: Original, self: Any, sender: Any, message: Any) -> None:
    if message.term < self._state.term and self._state.role is Role.FOLLOWER:
        self._elections.take_over()
    original(self, sender, message)


def old_heartbeat_resets_the_timer(original: Original, self: Any, event: Any) -> None:
    if event.term < self._state.term and self._state.role is Role.FOLLOWER:
        self._state.reset_election_deadline()
    original(self, event)


def win_with_one_vote_less(original: Original, self: Any, voter: Any, *, granted: bool) -> None:
    replica = self._state
    majority, replica.majority = replica.majority, max(1, replica.majority - 1)
    try:
        original(self, voter, granted=granted)
    finally:
        replica.majority = majority


# -- flushes --------------------------------------------------------------------------------------


def flush_one_entry_too_far(original: Original, self: Any) -> bool:
    durable = self.writer.durable(self.superblock.log_id)
    if not self._able or durable.index + 1 < self.applier.applied.index or not self.applier.idle:
        return False
    return bool(self._run(self.applier.store.flush, flushes=True))


# -- syncs ----------------------------------------------------------------------------------------


class _RetriedFile:
    """A file whose failed syncs are repeated once."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwritev(self, buffers: Any, offset: int, *, dsync: bool = False) -> int:
        try:
            return int(self._file.pwritev(buffers, offset, dsync=dsync))
        except SyncFailed:
            self._file.sync()
            return sum(map(len, buffers))

    def sync(self, *, data_only: bool = False) -> None:
        try:
            self._file.sync(data_only=data_only)
        except SyncFailed:
            self._file.sync(data_only=data_only)


def retry_a_begun_write(original: Original, self: Any) -> Any:
    failure = original(self)
    if not isinstance(failure, SyncFailed):
        return failure
    self.file.sync()
    return None


def retry_in_place(original: Original, self: Any, *arguments: Any, **options: Any) -> Any:
    file, self._file = self._file, _RetriedFile(self._file)
    try:
        return original(self, *arguments, **options)
    finally:
        self._file = file


def rename_without_its_directory(original: Original, files: Any, temporary: str, path: str, parent: str) -> None:
    if files.exists(path):
        files.rename(temporary, path)
    else:
        original(files, temporary, path, parent)


def write_a_replacement_without_sync(original: Original, files: Any, path: str, data: Any) -> None:
    with closing(files.create(path)) as file:
        file.pwritev([data], 0)


class _NamesUnsynced:
    """``Files`` whose directories are not synced."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def sync_directory(self, path: str) -> None:
        return None


def next_block_without_its_directory(original: Original, self: Any) -> Any:
    files, self._files = self._files, _NamesUnsynced(self._files)
    try:
        return original(self)
    finally:
        self._files = files


def make_directories_unsynced(original: Original, files: Any, *arguments: Any) -> Any:
    return original(_NamesUnsynced(files), *arguments)


def trust_what_is_visible(original: Original, *given: Any) -> None:
    """A start reads names that a killed process has made, and syncs no directory."""
