"""Checks an environment in a child process, and interprets its death as a result.

SIGBUS kills a process that reads a truncated file through its map, and a flipped bit in a page header can make LMDB
fail in any way. Here that ends a child process and not a node. The child is a new interpreter and not a fork, because
an environment must not cross a fork. It runs the engine's own module, which calls :func:`main`.

A disk that cannot be read kills the child in the same way. So the file is then read again by plain calls, and it is
broken only if all of it can be read. A child that gets no memory, or that was killed from outside, says nothing about
the file. So a child first loads all its code, tests whether it gets memory, and announces that it begins to read. If it
dies before that, the file is not the cause. An abort is caused by the file only if LMDB reports a failed assertion,
because a process without memory aborts as well."""

from __future__ import annotations

import importlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from stelae.spi.errors import FutureVersion, StorageError
from stelae_shared.lmdb_files.environment import DATA_NAME, MAP_BYTES_MIN
from stelae_shared.lmdb_files.library import library, of_the_system, typed

_ERROR_BYTES_MAX = 400
_PROBLEMS_MAX = 3
_PIECE_BYTES = 1 << 20
_BY_WHAT_IT_READ = {signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE}
_BEGINS = b"reading\n"
_MEMORY_BYTES = 32 << 20
"""Memory that a child must get before it begins. It reads bodies in the map, so it needs little more."""
_ASSERTED = "Assertion '"


class ChildReport(msgspec.Struct, frozen=True):
    """The report of a child. Engines may add fields."""

    broken: str = ""  #: Why the environment is unusable; empty if it is not.
    newer: str = ""  #: Says that a newer release wrote it; empty otherwise. That is not damage.
    unread: str = ""  #: Why it could not be checked now; empty if it was. That is not damage.


R = TypeVar("R", bound=ChildReport)


def check_in_child(command: Sequence[str], directory: str, seconds_max: int, report: type[R]) -> R:
    """Let a child check the environment in ``directory``. Never raises for what it finds there.

    Args:
        command: arguments of the interpreter before the directory: ``-m`` and a module.
        directory: of the environment.
        seconds_max: limit of the check in seconds.
        report: type of the report that the child prints.
    """
    whole = [sys.executable, *command, directory]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    try:
        done = subprocess.run(whole, env=environment, capture_output=True, timeout=seconds_max, check=False)
    except subprocess.TimeoutExpired:
        return report(unread=f"the check was not done after {seconds_max} s: raise check_seconds_max")
    except OSError as error:
        return report(unread=f"no process could be started to check it: {error}")
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout.removeprefix(_BEGINS), type=report)
    said = done.stderr.decode(errors="replace").strip()[-_ERROR_BYTES_MAX:]
    if done.returncode < 0:
        began = done.stdout.startswith(_BEGINS)
        return _killed(-done.returncode, f"{directory}/{DATA_NAME}", report, began=began, said=said)
    return report(unread=f"the check ended with code {done.returncode}: {said}")


def _killed(number: int, path: str, report: type[R], *, began: bool, said: str) -> R:
    """Return the report for a child that a signal ended. ``began``: it had begun to read. ``said``: its errors."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    last = f" (it said: {said})" if said else ""
    if not began:
        fact = f"{name} killed the process that was to check it, before it read the file: is there memory enough?"
        return report(unread=fact + last)
    if number not in _BY_WHAT_IT_READ or (number == signal.SIGABRT and _ASSERTED not in said):
        return report(unread=f"{name} killed the process that read it, not the file: is there memory enough?{last}")
    unread = _unread(path)
    if unread:
        return report(unread=f"{name} killed the process that read it, and the disk cannot read it: {unread}")
    return report(broken=f"{name} killed the process that read it: the file was cut, or a page is damaged{last}")


def _unread(path: str) -> str:
    """Return why plain calls cannot read a file to its end; empty if they can."""
    try:
        with open(path, "rb", buffering=0) as file:
            while file.read(_PIECE_BYTES):
                pass
    except OSError as error:
        return str(error)
    return ""


def check(directory: str, wanted_by: str, contents: Callable[[Any, str], R], report: type[R]) -> R:
    """Check the environment in a directory: its structure, then its contents. May kill the process.

    It only reads, and takes no lock, because its parent holds the directory. The structure is checked page by page:
    every page is reachable once, and no page is both free and in use. The library's own verifier does that where it
    exists (py-lmdb 3), else a compacting copy to the null device, which visits every page in use.

    Args:
        directory: of the environment.
        wanted_by: name of the engine, for an error if the library is missing.
        contents: reads everything in a transaction. It gets the path for its errors. It returns a report, or raises a
            ``StorageError``.
        report: type of the report.
    """
    path = f"{directory}/{DATA_NAME}"
    try:
        return _checked(directory, path, wanted_by, contents, report)
    except (OSError, MemoryError) as error:
        return report(unread=f"cannot read {path}: {error}")
    except (struct.error, ValueError, LookupError, TypeError) as error:
        return report(broken=f"what it holds is nothing that was written: {error!r}")


def _checked(directory: str, path: str, wanted_by: str, contents: Callable[[Any, str], R], report: type[R]) -> R:
    size = os.path.getsize(path)
    if not size:
        return report(broken="the file is empty")
    lmdb = library(wanted_by)
    env = None
    try:
        # LMDB opens the file first, because it recognizes another version of its format. The verifier calls it broken.
        env = lmdb.open(directory, map_size=max(size, MAP_BYTES_MIN), readonly=True, lock=False)
        problems = verified(path)
        if problems:
            more = f" (and {len(problems) - _PROBLEMS_MAX} more)" if len(problems) > _PROBLEMS_MAX else ""
            return report(broken="; ".join(problems[:_PROBLEMS_MAX]) + more)
        if problems is None:
            with open(os.devnull, "wb") as nowhere:
                env.copyfd(nowhere.fileno(), compact=True)
        with env.begin(buffers=True) as txn:
            return contents(txn, path)
    except lmdb.Error as error:
        if of_the_system(error):
            return report(unread=f"LMDB cannot open or read it: {error}")
        return _refusal(typed(error, path), report)
    except StorageError as error:
        return _refusal(error, report)
    finally:
        if env is not None:
            env.close()


def verified(path: str) -> list[str] | None:
    """Return the problems that the library's own verifier finds in a file; ``None`` if the library has no verifier."""
    try:
        verifier = importlib.import_module("lmdb.verify")
    except ImportError:
        return None
    try:
        return list(verifier.verify(path, subdir=False))
    except verifier.VerifyError as error:
        return [str(error)]


def announce() -> None:
    """Test that the child gets memory, and announce that it begins to read the file."""
    bytearray(_MEMORY_BYTES)
    sys.stdout.buffer.write(_BEGINS)
    sys.stdout.buffer.flush()


def main(checked: Callable[[str], ChildReport]) -> None:
    """Run the child: check the directory that the command line names, and print the report."""
    with suppress(ImportError):  # ``library`` reports later what to install.
        importlib.import_module("lmdb")
    announce()
    sys.stdout.buffer.write(msgspec.json.encode(checked(sys.argv[1])))


def _refusal(error: StorageError, report: type[R]) -> R:
    return report(newer=error.fact) if isinstance(error, FutureVersion) else report(broken=error.fact)
