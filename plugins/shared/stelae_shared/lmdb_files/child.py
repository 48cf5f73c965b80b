"""Has a child process check an environment, and takes its death for an answer.

A file that was cut kills whoever reads it through its map with SIGBUS, and a flipped bit in a page header can
lead LMDB anywhere. Here that ends a child instead of a node. The child is a fresh interpreter, not a fork: an
environment must not cross a fork. It runs the engine's own module, which calls :func:`main`.

A disk that cannot be read kills it in the same way, so the file is then read once more, by plain calls: it is
broken if it was read back whole. A child without memory, or one that somebody killed, says nothing about the file. So
a child loads all its code, tries whether it gets memory, and says that it begins: what killed it before that was not
the file. And an abort is the file's only if an assertion of LMDB speaks: without memory a process aborts as well."""

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
"""What a child has to get before it begins; bodies are read where they stand, so it takes little more than that."""
_ASSERTED = "Assertion '"


class ChildReport(msgspec.Struct, frozen=True):
    """What a child found. ``broken`` says why the environment is of no use at all, if so.

    ``newer`` says that a newer release wrote it, ``unread`` why it could not be checked now: neither is damage.
    Engines may add what they find."""

    broken: str = ""
    newer: str = ""
    unread: str = ""


R = TypeVar("R", bound=ChildReport)


def check_in_child(command: Sequence[str], directory: str, seconds_max: int, report: type[R]) -> R:
    """Let a child check the environment in ``directory``; never raises for what it meets there.

    Args:
        command: what the interpreter gets before the directory: ``-m`` and a module.
        seconds_max: a check that takes longer is given up.
        report: what the child prints.
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
    """What it means that a signal ended the child, which had begun to read and said so much."""
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
    """Say why plain calls cannot read a file to its end, if they cannot."""
    try:
        with open(path, "rb", buffering=0) as file:
            while file.read(_PIECE_BYTES):
                pass
    except OSError as error:
        return str(error)
    return ""


def check(directory: str, wanted_by: str, contents: Callable[[Any, str], R], report: type[R]) -> R:
    """Check the environment in a directory: its structure, then what is in it; may kill the process.

    It reads only, and takes no lock: its parent holds the directory. The structure is checked page by page: every
    page reachable once, none both free and in use. The library's own verifier does it where there is one (py-lmdb
    3), else a compacting copy to nowhere, which visits every page in use.

    Args:
        wanted_by: the engine.
        contents: reads everything in a transaction, with the path for its errors; says what is wrong, or raises a
            ``StorageError`` that tells it.
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
        # First, for LMDB itself knows another version of its format; the verifier calls that broken.
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
    """What the library's own verifier says of a file; ``None`` if the library has none."""
    try:
        verifier = importlib.import_module("lmdb.verify")
    except ImportError:
        return None
    try:
        return list(verifier.verify(path, subdir=False))
    except verifier.VerifyError as error:
        return [str(error)]


def announce() -> None:
    """Say that the child gets memory, and that the file is read from now on."""
    bytearray(_MEMORY_BYTES)
    sys.stdout.buffer.write(_BEGINS)
    sys.stdout.buffer.flush()


def main(checked: Callable[[str], ChildReport]) -> None:
    """What a child runs: check the directory that the command line names, print the report."""
    with suppress(ImportError):  # Who needs it says what to install.
        importlib.import_module("lmdb")
    announce()
    sys.stdout.buffer.write(msgspec.json.encode(checked(sys.argv[1])))


def _refusal(error: StorageError, report: type[R]) -> R:
    return report(newer=error.fact) if isinstance(error, FutureVersion) else report(broken=error.fact)
