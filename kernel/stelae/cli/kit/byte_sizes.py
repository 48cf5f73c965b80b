"""Numbers of bytes as users write them: ``1048576``, ``20MiB``, ``1.5g``."""

from __future__ import annotations

import re

from stelae.spi.errors import CallerError

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(?:i?b)?(?:/s)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
NO_LIMIT = "none"


def byte_size(argument: str, text: str) -> int:
    """Return the bytes that a user has written. Units are binary: ``k``, ``KB`` and ``KiB`` are all 1024 bytes.

    Args:
        argument: how the user knows the argument, for the error.

    Raises:
        CallerError: the text is no size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise CallerError(f"{argument} must be a number of bytes such as 1048576, 512k, 20MiB or 1g, not {text[:80]!r}")
    return round(float(found[1]) * _UNITS[found[2].lower()])


def byte_limit(argument: str, text: str) -> int:
    """Return the bytes of a limit. ``none`` is 0, which means no limit. Raises as ``byte_size``."""
    if text.strip().lower() == NO_LIMIT:
        return 0
    try:
        return byte_size(argument, text)
    except CallerError as error:
        raise CallerError(f"{error}; {NO_LIMIT!r} and 0 mean no limit") from None
