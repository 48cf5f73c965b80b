"""Names that there are, for whoever gave one that there is not: the nearest first, and no more than a line holds."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

NAMES_MAX = 10
"""Most names that are told."""

_COMPARED_MAX = 2000
"""Most names that are compared; it takes some 25 µs each."""


def listed(known: Iterable[str], given: str = "") -> str:
    """Return names in a row, those near to ``given`` before the others; ``none`` if there are none."""
    names = sorted(known)
    folded = {name.casefold(): name for name in reversed(names[:_COMPARED_MAX])}
    near = [folded[name] for name in difflib.get_close_matches(given[:80].casefold(), folded, n=NAMES_MAX)]
    told = [*near, *(name for name in names if name not in near)][:NAMES_MAX]
    more = f" and {len(names) - len(told)} more" if len(names) > len(told) else ""
    return f"{', '.join(told)}{more}" if told else "none"
