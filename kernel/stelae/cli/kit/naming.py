"""Finds what a user means by a name, the beginning of an id, or an address; says what is near when nothing is meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from stelae.spi.errors import CallerError

PREFIX_MIN = 4
"""A shorter beginning of an id means nothing: it would be another one's tomorrow."""
SHOWN_MIN = 8
_NEAR_MAX = 5
_CLOSE = 0.5


class UnknownName(CallerError, code="UNKNOWN_NAME"):
    """There is nothing of that name, or several things."""


def pick(what: str, given: str, names: Mapping[str, str], see: str, *, shown: Iterable[str] | None = None) -> str:
    """Return the id of what is meant.

    Args:
        what: a word for the kind of thing, for errors.
        given: what the user wrote: a name, or at least four letters that one id, and no other, begins with.
        names: ids by every name under which something is known, its id among them.
        see: the command that lists them.
        shown: names to compare with and to tell, if not all of ``names``.

    Raises:
        UnknownName: nothing, or more than one thing, is meant; with the nearest names.
    """
    if given in names:
        return names[given]
    begun = (
        sorted({found for name, found in names.items() if name.startswith(given)}) if len(given) >= PREFIX_MIN else []
    )
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise UnknownName(
            f"{len(begun)} {what}s begin with {given!r}: {_listed(begun)}; write more of the one you mean"
        )
    told = sorted(names if shown is None else shown)
    near = difflib.get_close_matches(given, told, n=_NEAR_MAX, cutoff=_CLOSE)
    others = f"there are: {_listed(told)}" if told else "there are none"
    known = f"the nearest are: {_listed(near)}" if near else others
    raise UnknownName(f"no {what} {given[:80]!r}; {known}; list them with: {see}")


def shorten(ids: Iterable[str]) -> dict[str, str]:
    """Return the beginning of each id that tells it from the others, all of them equally long."""
    known = set(ids)
    longest = max(map(len, known), default=0)
    length = next((n for n in range(SHOWN_MIN, longest) if len({name[:n] for name in known}) == len(known)), longest)
    return {name: name[:length] for name in known}


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - _NEAR_MAX} more" if len(names) > _NEAR_MAX else ""
    return ", ".join(names[:_NEAR_MAX]) + more
