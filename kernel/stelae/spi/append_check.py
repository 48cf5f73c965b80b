"""Whether an append fits its log: what every engine has to refuse, in words."""

from __future__ import annotations

from stelae.spi.wal import Append, LogState


def check_append(state: LogState, append: Append) -> str | None:
    """Say why an append does not fit a log, or ``None`` if it does.

    Checks contiguity, terms that do not decrease, and that nothing at or below the base is replaced. It needs the term
    before ``replace_from`` only to be at most the new entries' term, which engines check where they know it."""
    start = state.last.index + 1 if append.replace_from is None else append.replace_from
    if append.replace_from is not None:
        if append.replace_from <= state.base.index:
            return f"replacement from {append.replace_from} reaches below the base {state.base}"
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
            return f"entry {entry.op_id} goes back from term {term}"
        term = entry_term
    return None
