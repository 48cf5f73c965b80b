"""Lookup of an object by its name, an address or the beginning of its id, with suggestions if there is no match."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

from stelae.spi.errors import CallerError

PREFIX_MIN = 4
"""Least letters of an id that are accepted. A shorter beginning would soon match a new id as well."""
SHOWN_MIN = 8
"""Least letters of an id that are printed."""
_NEAR_MAX = 5
_CLOSE = 0.5

_Id = TypeVar("_Id", bound=str)


class UnknownName(CallerError, code="UNKNOWN_NAME"):
    """Nothing has this name, or several ids begin with it."""


class SharedAddress(CallerError, code="SHARED_ADDRESS"):
    """Several nodes have the address that the user names."""


def pick_node(
    what: str, given: str, addresses: Mapping[_Id, str], see: str, names: Mapping[str, str] | None = None
) -> str:
    """Return the uuid of the node that the user names by an address, a uuid or another name.

    A lost node and the one that replaces it may have one address. A command about one must not mean the other.

    Args:
        addresses: the address of each node, by its uuid.
        names: the uuids of nodes, by their other names. Others than those of ``addresses`` may be among them.

    Raises:
        SharedAddress: several nodes have the address.
        UnknownName: as ``pick``.
    """
    if len(at := nodes_at(given, addresses)) > 1:
        fact = f"{len(at)} {what}s have the address {given}: {', '.join(at)}"
        raise SharedAddress(f"{fact}; write the uuid of the one that you mean, or its first letters; see: {see}")
    known = {name: str(node) for node, address in addresses.items() for name in (address, node)}
    return pick(what, given, {**(names or {}), **known}, see)


def nodes_at(address: str, addresses: Mapping[_Id, str]) -> list[_Id]:
    """Return the uuids of the nodes that have an address, sorted."""
    return sorted(node for node, found in addresses.items() if found == address)


def pick(what: str, given: str, names: Mapping[str, str], see: str, *, shown: Iterable[str] | None = None) -> str:
    """Return the id of the object that the user names.

    Args:
        what: the kind of object, for messages.
        given: what the user wrote: a name, or at least four letters with which exactly one id begins.
        names: the id of each object, by each of its names and by the id itself.
        see: the command that lists the objects.
        shown: the names to suggest, if not all of ``names``.

    Raises:
        UnknownName: no object matches, or several do. The message has the nearest names.
    """
    if given in names:
        return names[given]
    # Not of other names: an address that is gone must not mean one whose port has a digit more.
    matches = sorted({one for one in names.values() if one.startswith(given)})
    if len(given) < PREFIX_MIN:
        matches = []
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownName(f"{len(matches)} {what}s begin with {given!r}: {_listed(matches)}; write more letters")
    known = sorted(names if shown is None else shown)
    near = difflib.get_close_matches(given, known, n=_NEAR_MAX, cutoff=_CLOSE)
    every = f"known: {_listed(known)}" if known else "there are none"
    hint = f"the nearest are: {_listed(near)}" if near else every
    raise UnknownName(f"no {what} {given[:80]!r}; {hint}; list them with: {see}")


def shorten(ids: Iterable[str]) -> dict[str, str]:
    """Return a unique beginning of each id, by id. All beginnings have the same length."""
    known = set(ids)
    longest = max(map(len, known), default=0)
    length = next((n for n in range(SHOWN_MIN, longest) if len({name[:n] for name in known}) == len(known)), longest)
    return {name: name[:length] for name in known}


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - _NEAR_MAX} more" if len(names) > _NEAR_MAX else ""
    return ", ".join(names[:_NEAR_MAX]) + more
