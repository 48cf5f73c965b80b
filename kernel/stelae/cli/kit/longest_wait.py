"""The option ``--wait-s`` of commands that wait for work that goes on by itself."""

from __future__ import annotations

from typing import Annotated

import typer

FOREVER_S = 1e9
"""The wait of a command without a limit, in seconds: 31 years."""

LongestWaitOption = Annotated[
    float, typer.Option("--wait-s", min=0.0, max=1e7, help="Longest wait in seconds. 0: as long as it takes.")
]


def longest_wait_s(wait: bool, wait_s: float) -> float | None:
    """Return the longest wait in seconds; ``None``: none. ``CallerError``: ``--wait-s`` without ``--wait``."""
    from stelae.spi.errors import CallerError

    if wait_s and not wait:
        raise CallerError("--wait-s needs --wait")
    return (wait_s or FOREVER_S) if wait else None
