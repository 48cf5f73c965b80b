"""Calls a function in another Python process, with another seed for the hashes of strings.

Sets of strings have another order there. So a check can show that a result does not depend on that order."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")


def call_elsewhere(function: Callable[..., _Answer], *args: object, hash_seed: int) -> _Answer:
    """Return what ``function`` returns in a process whose ``PYTHONHASHSEED`` is ``hash_seed``.

    Function, arguments and answer are pickled, so classes and functions must be at the top of modules."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-m", "stelae.testing.other_process"]
    asked = pickle.dumps((function, args))
    done = subprocess.run(command, input=asked, env=environment, stdout=subprocess.PIPE, check=True)
    answer: _Answer = pickle.loads(done.stdout)
    return answer


if __name__ == "__main__":
    called, given = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps(called(*given)))
