"""Lists the existing names for an error about an unknown name: the most similar names first, and not too many."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NAMES_MAX = 10
"""The most names in a list."""

_COMPARED_MAX = 2000
"""The most names that are compared. A comparison takes about 25 µs."""


def listed(known: Iterable[str], given: str = "") -> str:
    """Return the names as one text, those similar to ``given`` first; ``none`` if there are none."""
    names = sorted(known)
    folded = {name.casefold(): name for name in reversed(names[:_COMPARED_MAX])}
    near = [folded[name] for name in difflib.get_close_matches(given[:80].casefold(), folded, n=NAMES_MAX)]
    shown = [*near, *(name for name in names if name not in near)][:NAMES_MAX]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{', '.join(shown)}{more}" if shown else "none"
