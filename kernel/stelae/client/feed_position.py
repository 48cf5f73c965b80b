"""Positions in the change feed of a table, and the parts of tablets between two of them. Pure.

A feed reads *rounds*. A round has the net changes between two times, the same for all tablets, tablet by tablet in a
fixed order, each in key order. A position is either between two rounds or within one. It is a short text, and says
exactly what was read: the same two positions always give the same changes, or an error if they are no longer kept.

A table with ranges can get new tablets. A position lists the tablets that were read, so the next round reads a tablet
that it does not list from the tablet's first row. The time of the position is not enough for that: the clock of the new
tablet's leader may be behind the end of the last round. A tablet that it lists and that does not exist any more was
dropped with its range: the changes of its rows cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId

_VERSION = 1


class BadPosition(CallerError, code="BAD_POSITION"):
    """A text that is no position of a change feed, or a position of another table or another round."""


class FeedPosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A place in the change feed of a table. ``str`` gives its text, which is JSON."""

    version: int
    table: str  #: Id of the table, or its name in a cluster without masters.
    since: int  #: Hybrid timestamp up to which everything was read; 0: nothing was read.
    until: int | None = None  #: Hybrid timestamp of the end of the round that was begun; ``None``: none was begun.
    tablets: tuple[TabletId, ...] = ()  #: The tablets of the last round, in its order. Empty: the table has no ranges.
    added: tuple[TabletId, ...] = ()  #: Those of ``tablets`` that the round before did not have.
    read: int = 0  #: How many tablets of the round were read to their end.
    after: str = ""  #: Hexadecimal encoded key up to which the next tablet was read; empty: it was not begun.

    @classmethod
    def at(cls, table: str, since: int, tablets: Sequence[TabletId] = ()) -> FeedPosition:
        """Return the position between two rounds at a time."""
        return cls(version=_VERSION, table=table, since=since, tablets=tuple(tablets))

    @classmethod
    def from_text(cls, text: str, table: str) -> FeedPosition:
        """Return the position of a text, for a table given by its id.

        Raises:
            BadPosition: the text is no position, or one of another table.
        """
        try:
            found = msgspec.json.decode(text, type=cls)
            bytes.fromhex(found.after)
        except (ValueError, RecursionError) as error:
            raise BadPosition(f"{text!r:.80} is no position of a change feed: {error}") from error
        if found.version != _VERSION:
            raise BadPosition(f"the position has version {found.version}, and this release reads version {_VERSION}")
        if found.table != table:
            fact = f"the position is of table {found.table!r}, and this is table {table!r}"
            raise BadPosition(f"{fact}; a table that was created again has another id: begin without a position")
        return found

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def is_between(self) -> bool:
        """Whether no round is begun and not finished."""
        return self.until is None

    @property
    def time(self) -> int:
        """The end of the round that was begun, or else that of the round before."""
        return self.since if self.until is None else self.until

    def within(self, end: FeedPosition, read: int, after: bytes | None) -> FeedPosition:
        """Return the position in the round from here to ``end`` at which ``read`` tablets and a part of the next were
        read: the part up to the key ``after``."""
        added = self.added if self.until is not None else tuple(self.added_of(end.tablets))
        return msgspec.structs.replace(
            self,
            until=end.time,
            tablets=end.tablets,
            added=added,
            read=read,
            after="" if after is None else after.hex(),
        )

    def begun(self, end: FeedPosition) -> FeedPosition:
        """Return this position as one within the round to ``end``."""
        return self.within(end, self.read, bytes.fromhex(self.after) or None)

    def finished(self) -> FeedPosition:
        """Return the position at the end of the round that was begun."""
        return FeedPosition.at(self.table, self.time, self.tablets)

    def added_of(self, tablets: Sequence[TabletId]) -> list[TabletId]:
        """Return those of the tablets of the next round that were not read before."""
        known = {*self.tablets}
        return [one for one in tablets if known and one not in known]

    def dropped_of(self, tablets: Sequence[TabletId]) -> list[TabletId]:
        """Return the tablets of this position that are not among those of the next round: their range was dropped."""
        present = {*tablets}
        return [one for one in self.tablets if one not in present]


class TabletPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of one tablet that lies between two positions."""

    number: int  #: Place of the tablet in the order of the round.
    tablet_id: TabletId
    since: int | None  #: Hybrid timestamp from which changes are read; ``None``: all rows are read.
    until: int  #: Hybrid timestamp of the end of the round.
    after: bytes | None  #: Encoded key after which to begin; ``None``: at the first key.
    upto: bytes | None  #: Encoded key with which to end; ``None``: at the last key.


def parts_between(start: FeedPosition, end: FeedPosition, present: Sequence[TabletId]) -> list[TabletPart]:
    """Return the parts of tablets between two positions of one round, in order.

    Args:
        start: the position from which to read. A round begins there, or was begun.
        end: the position up to which to read.
        present: the tablets of the table, in order, for a table without ranges.

    Raises:
        BadPosition: the positions are not in one round, or ``end`` is before ``start``.
    """
    _check_order(start, end)
    tablets = end.tablets or tuple(present)
    added = {*(start.added if start.until is not None else start.added_of(tablets))}
    stop = len(tablets) if end.is_between else end.read
    parts = []
    for number in range(start.read, min(stop + 1, len(tablets))):
        tablet_id = tablets[number]
        upto = bytes.fromhex(end.after) if number == stop else b""
        if number == stop and not upto:
            break
        after = bytes.fromhex(start.after) if number == start.read else b""
        since = None if tablet_id in added or not start.since else start.since
        if since is None or since < end.time:
            parts.append(
                TabletPart(
                    number=number,
                    tablet_id=tablet_id,
                    since=since,
                    until=end.time,
                    after=after or None,
                    upto=upto or None,
                )
            )
    return parts


def _check_order(start: FeedPosition, end: FeedPosition) -> None:
    if start.until is not None:
        is_one_round = (end.time, end.tablets) == (start.until, start.tablets)
    else:
        is_one_round = end.time >= start.since
    if not end.is_between:
        is_one_round = is_one_round and end.since == start.since
    if start.table != end.table or not is_one_round:
        raise BadPosition(f"the positions {start} and {end} are not in one round of one feed, in this order")
    if start.until is not None and not end.is_between and (start.read, start.after) > (end.read, end.after):
        raise BadPosition(f"the position {end} is before {start}; exchange them")
