"""Checks that an append fits its log. Every log engine must refuse what does not fit."""

from __future__ import annotations

from stelae.spi.wal import Append, LogState


def check_append(state: LogState, append: Append) -> str | None:
    """Return why an append does not fit a log, or ``None`` if it fits.

    The indexes must be contiguous, the terms must not decrease, and nothing at or below the base may be replaced. This
    function does not know the term of the entry before ``replace_from``. An engine that knows it must check that the
    new entries' terms are not lower."""
    start = state.last.index + 1 if append.replace_from is None else append.replace_from
    if append.replace_from is not None:
        if append.replace_from <= state.base.index:
            return f"replacement from {append.replace_from} is not above the base {state.base}"
        if append.replace_from > state.last.index + 1:
            return f"replacement from {append.replace_from} leaves a gap after {state.last}"
    elif not append.entries:
        return "nothing to append and nothing to replace"
    term = state.last.term if append.replace_from is None else state.base.term
    for expected, entry in enumerate(append.entries, start):
        entry_term, index = entry.op_id
        if index != expected:
            return f"entry {entry.op_id} is not at the expected index {expected}"
        if entry_term < term:
            return f"entry {entry.op_id} follows an entry of the higher term {term}"
        term = entry_term
    return None
