"""Has a child process check an environment, and takes its death for an answer.

A file that was cut kills whoever reads it through its map with SIGBUS, and a flipped bit in a page header can
lead LMDB anywhere. Here that ends a child instead of a node. The child is a fresh interpreter, not a fork: an
environment must not cross a fork. It runs the engine's own module, which calls :func:`main`."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from stelae.lmdb_support.environment import DATA_NAME, MAP_BYTES_MIN
from stelae.lmdb_support.library import library, typed
from stelae.spi.errors import FutureVersion, StorageError

_ERROR_BYTES_MAX = 400
_PROBLEMS_MAX = 3


class Report(msgspec.Struct, frozen=True):
    """What a child found. ``broken`` says why the environment is of no use at all, if so.

    ``newer`` says that a newer release wrote it, which is no damage. Engines may add what they find."""

    broken: str = ""
    newer: str = ""


R = TypeVar("R", bound=Report)


def check_in_child(command: Sequence[str], directory: str, seconds_max: int, report: type[R]) -> R:
    """Let a child check the environment in ``directory``; never raises for what it meets there.

    Args:
        command: what the interpreter gets before the directory: ``-m`` and a module.
        seconds_max: a check that takes longer counts as failed.
        report: what the child prints.
    """
    whole = [sys.executable, *command, directory]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    try:
        done = subprocess.run(whole, env=environment, capture_output=True, timeout=seconds_max, check=False)
    except subprocess.TimeoutExpired:
        return report(broken=f"the check was not done after {seconds_max} s; see check_seconds_max")
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=report)
    if done.returncode < 0:
        try:
            name = signal.Signals(-done.returncode).name
        except ValueError:
            name = f"signal {-done.returncode}"
        return report(broken=f"{name} killed the process that read it: the file was cut, or a page is damaged")
    said = done.stderr.decode(errors="replace").strip()[-_ERROR_BYTES_MAX:]
    return report(broken=f"the check ended with code {done.returncode}: {said}")


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
    problems = verified(path)
    if problems:
        more = f" (and {len(problems) - _PROBLEMS_MAX} more)" if len(problems) > _PROBLEMS_MAX else ""
        return report(broken="; ".join(problems[:_PROBLEMS_MAX]) + more)
    lmdb = library(wanted_by)
    size = max(os.path.getsize(path), MAP_BYTES_MIN)
    env = None
    try:
        env = lmdb.open(directory, map_size=size, readonly=True, lock=False)
        if problems is None:
            with open(os.devnull, "wb") as nowhere:
                env.copyfd(nowhere.fileno(), compact=True)
        with env.begin(buffers=True) as txn:
            return contents(txn, path)
    except lmdb.Error as error:
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


def main(checked: Callable[[str], Report]) -> None:
    """What a child runs: check the directory that the command line names, print the report."""
    sys.stdout.buffer.write(msgspec.json.encode(checked(sys.argv[1])))


def _refusal(error: StorageError, report: type[R]) -> R:
    return report(newer=error.fact) if isinstance(error, FutureVersion) else report(broken=error.fact)
