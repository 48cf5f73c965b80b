"""A random source with the two draws that contracts allow, so that a run can be replayed with any version of Python."""

from __future__ import annotations

import random
from typing import Any

ALLOWED = ("random", "getrandbits")


class GuardedRandom(random.Random):
    """A random source that allows only ``random`` and ``getrandbits``.

    What the other methods return differs between versions of Python. They raise ``AssertionError``."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(seed)
        self._is_guarded = True

    def __getattribute__(self, name: str) -> Any:
        public = not name.startswith("_") and name not in ALLOWED
        if public and "_is_guarded" in super().__getattribute__("__dict__"):
            raise AssertionError(f"an engine draws only random() and getrandbits(), not {name}()")
        return super().__getattribute__(name)
