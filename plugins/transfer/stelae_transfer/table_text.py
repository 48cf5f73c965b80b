"""Layout of rows as a table for a terminal. No line is wider than the terminal.

Columns that do not fit are omitted, and a line below the table names them and the options that show them. The widths
are taken from the first rows, so that a large result can be streamed. Longer values are cut with an ellipsis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from stelae_transfer.value_text import cell_text

FIRST_ROWS = 200
"""Rows from which the widths are taken."""

CELL_WIDTH_MAX = 40
"""Greatest width of a column if the columns do not all fit at full width."""

CELL_WIDTH_MIN = 8
"""Smallest width of a column that is narrowed to make room for others."""

NULL = "null"
GAP = "  "
_MORE = "…"


class TableText:
    """Formats rows as lines of a table.

    Args:
        names: the names of the columns.
        numeric: which columns are numbers and are right-aligned.
        width: the width of a line in terminal cells.
        rows: the first rows, from which the widths are taken.
        first_columns: columns that are shown in preference to others, such as those of the key.
    """

    def __init__(
        self,
        names: Sequence[str],
        numeric: Sequence[bool],
        width: int,
        rows: Sequence[Sequence[Any]],
        first_columns: Sequence[str] = (),
    ) -> None:
        self._names = [cell_text(name) for name in names]
        self._numeric = numeric
        self._width = max(width, CELL_WIDTH_MIN)
        wanted = [
            max(cell_len(name), max((cell_len(_text(row[place])) for row in rows), default=0))
            for place, name in enumerate(self._names)
        ]
        first = [place for place, name in enumerate(names) if name in first_columns]
        self._shown, self._widths = self._fit(wanted, first)

    @property
    def left_out(self) -> list[str]:
        """Return the names of the columns that do not fit."""
        return [name for place, name in enumerate(self._names) if place not in self._widths]

    def header(self) -> str:
        """Return the line with the column names."""
        return self._line([self._names[place] for place in self._shown])

    def line(self, row: Sequence[Any]) -> str:
        """Return the line of one row."""
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
        """Choose columns and widths: all at full width, else all narrowed, else as many narrowed ones as fit."""
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
        """Distribute the remaining width to the narrowed columns, one cell at a time."""
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
    """Return one line that names the columns that are not shown."""
    fact = f"({count - len(left_out)} of {count} columns; show more with --columns or --format lines: "
    room = width - cell_len(fact) - 1
    return f"{fact}{_fitted(', '.join(left_out), max(room, CELL_WIDTH_MIN), right=False).rstrip()})"


def lines(names: Sequence[str], row: Sequence[Any], width: int) -> Iterator[str]:
    """Yield one line for each column of a row. Long values continue on indented lines."""
    widest = min(max((cell_len(cell_text(name)) for name in names), default=0), max(CELL_WIDTH_MIN, width // 3))
    room = max(CELL_WIDTH_MIN, width - widest - len(GAP))
    for name, value in zip(names, row, strict=True):
        head = _fitted(cell_text(name), widest, right=False)
        for part in _cut(_text(value).rstrip(), room):
            yield f"{head}{GAP}{part}".rstrip()
            head = " " * widest


def _cut(text: str, width: int) -> Iterator[str]:
    """Yield a text in parts of at most ``width`` cells."""
    part, used = "", 0
    for character in text:
        size = cell_len(character)
        if used + size > width:
            yield part
            part, used = "", 0
        part += character
        used += size
    yield part


def _text(value: Any) -> str:
    return NULL if value is None else cell_text(value)


def _fitted(text: str, width: int, *, right: bool) -> str:
    """Cut or pad a text to a width in cells. Wide characters take two cells."""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, max(0, width - 1)) + _MORE
    pad = " " * (width - size)
    return pad + text if right else text + pad
