"""Counts with their nouns, for messages and progress lines."""

from __future__ import annotations


def counted(count: int, what: str) -> str:
    """Return a count with its noun, which gets an ``s`` unless the count is 1."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
