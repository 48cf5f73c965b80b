"""Rows as a table that stays readable on a terminal: no line is wider than it, whatever the rows hold.

Columns that do not fit are left out, and named below with what shows them. Widths are those of the first rows, so
that a large result streams; what is longer later is cut with an ellipsis, as everything is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from stelae_transfer.plain import cell_text

FIRST_ROWS = 200
"""Rows that are looked at before the first is shown."""

CELL_WIDTH_MAX = 40
"""Widest column as long as there is no room for all of them whole."""

CELL_WIDTH_MIN = 8
"""Narrowest that a column is made so that one more fits."""

NULL = "null"
GAP = "  "
_MORE = "…"


class TableText:
    """Lays rows out.

    Args:
        names: of the columns.
        numeric: which of them are right-aligned.
        width: cells of a line.
        rows: the first rows, from which widths are taken.
        kept: columns to show before others, such as those of the key.
    """

    def __init__(
        self,
        names: Sequence[str],
        numeric: Sequence[bool],
        width: int,
        rows: Sequence[Sequence[Any]],
        kept: Sequence[str] = (),
    ) -> None:
        self._names = [cell_text(name) for name in names]
        self._numeric = numeric
        self._width = max(width, CELL_WIDTH_MIN)
        wanted = [
            max(cell_len(name), max((cell_len(_text(row[place])) for row in rows), default=0))
            for place, name in enumerate(self._names)
        ]
        first = [place for place, name in enumerate(names) if name in kept]
        self._shown, self._widths = self._fit(wanted, first)

    @property
    def left_out(self) -> list[str]:
        """Names of the columns that do not fit."""
        return [name for place, name in enumerate(self._names) if place not in self._widths]

    def header(self) -> str:
        """Return the line with the names."""
        return self._line([self._names[place] for place in self._shown])

    def line(self, row: Sequence[Any]) -> str:
        """Return the line of a row."""
        return self._line([_text(row[place]) for place in self._shown])

    def _line(self, cells: Sequence[str]) -> str:
        fitted = [
            _fitted(cell, self._widths[place], right=self._numeric[place])
            for place, cell in zip(self._shown, cells, strict=True)
        ]
        if self.left_out:
            fitted.append(_MORE)
        return GAP.join(fitted).rstrip()

    def _fit(self, wanted: Sequence[int], first: Sequence[int]) -> tuple[list[int], dict[int, int]]:
        """Choose columns and widths: all whole if they fit, else all of them cut, else as many as fit, cut."""
        every = range(len(wanted))
        for limit in (max(wanted, default=0), CELL_WIDTH_MAX, CELL_WIDTH_MIN * 2):
            widths = {place: min(wanted[place], limit) for place in every}
            if self._total(widths) <= self._width:
                return [*every], self._widened(widths, wanted)
        chosen: dict[int, int] = {}
        room = self._width - len(GAP) - len(_MORE)
        for place in [*first, *(p for p in every if p not in first)]:
            width = min(wanted[place], CELL_WIDTH_MIN * 2)
            more = self._total({**chosen, place: width})
            if more > room:
                break
            chosen[place] = width
        chosen = chosen or {0: room}
        return sorted(chosen), self._widened(chosen, wanted, room)

    def _widened(self, widths: dict[int, int], wanted: Sequence[int], room: int | None = None) -> dict[int, int]:
        """Give what is left of the line to columns that were cut, a cell at a time."""
        left = (self._width if room is None else room) - self._total(widths)
        while left > 0:
            cut = [place for place, width in widths.items() if width < wanted[place]]
            if not cut:
                break
            for place in cut[:left]:
                widths[place] += 1
            left -= len(cut[:left])
        return widths

    @staticmethod
    def _total(widths: dict[int, int]) -> int:
        return sum(widths.values()) + len(GAP) * max(0, len(widths) - 1)


def footer(left_out: Sequence[str], count: int, width: int) -> str:
    """Say which columns are not shown, in one line."""
    fact = f"({count - len(left_out)} of {count} columns; --columns chooses, --format lines shows all: "
    room = width - cell_len(fact) - 1
    return f"{fact}{_fitted(', '.join(left_out), max(room, CELL_WIDTH_MIN), right=False).rstrip()})"


def lines(names: Sequence[str], row: Sequence[Any], width: int) -> Iterator[str]:
    """Yield a row with one line for each column; long values go on in lines below, indented."""
    widest = min(max((cell_len(cell_text(name)) for name in names), default=0), max(CELL_WIDTH_MIN, width // 3))
    room = max(CELL_WIDTH_MIN, width - widest - len(GAP))
    for name, value in zip(names, row, strict=True):
        head = _fitted(cell_text(name), widest, right=False)
        for piece in _pieces(_text(value).rstrip(), room):
            yield f"{head}{GAP}{piece}".rstrip()
            head = " " * widest


def _pieces(text: str, width: int) -> Iterator[str]:
    piece, used = "", 0
    for character in text:
        size = cell_len(character)
        if used + size > width:
            yield piece
            piece, used = "", 0
        piece += character
        used += size
    yield piece


def _text(value: Any) -> str:
    return NULL if value is None else cell_text(value)


def _fitted(text: str, width: int, *, right: bool) -> str:
    """Cut or pad to a width in cells: wide characters take two."""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, max(0, width - 1)) + _MORE
    pad = " " * (width - size)
    return pad + text if right else text + pad
