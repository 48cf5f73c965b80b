"""Tables and facts that fit the terminal: cells are wrapped, and what is long is told in units that people read.

The width is that of the terminal, or ``COLUMNS``. Where the output is no terminal nothing is wrapped: a row is a line,
as ``grep`` and ``awk`` expect. ``--json`` is for programs."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

from stelae.cli.kit.output import note

WIDTH_MIN = 40
"""Narrower terminals get lines that are too long: words of one letter help nobody."""
_COLUMN_MIN = 6
_GAP = "  "
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def width() -> int:
    """Columns that a line may have."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return sys.maxsize
    return max(WIDTH_MIN, shutil.get_terminal_size((80, 24)).columns)


def print_fitted(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; a line break in a cell is kept, and cells too wide for the terminal are wrapped."""
    print("\n".join(fitted(headers, rows, width())))


def fitted(headers: Sequence[str], rows: Sequence[Sequence[object]], columns: int) -> list[str]:
    """Return the lines of a table of at most so many columns."""
    cells = [[str(cell) for cell in row] for row in (headers, *rows)]
    widths = _shared(cells, columns - len(_GAP) * (len(headers) - 1))
    lines = []
    for row in cells:
        wrapped = [_wrap(cell, limit) for cell, limit in zip(row, widths, strict=True)]
        for number in range(max(len(cell) for cell in wrapped)):
            parts = [cell[number] if number < len(cell) else "" for cell in wrapped]
            padded = [part.ljust(limit) for part, limit in zip(parts, widths, strict=True)]
            lines.append(_GAP.join(padded).rstrip())
    return lines


def print_facts(facts: Mapping[str, object]) -> None:
    """Print one fact on a line, its name in front; empty ones are left out."""
    shown = {name: str(value) for name, value in facts.items() if str(value)}
    indent = max(map(len, shown), default=0) + len(_GAP)
    for name, value in shown.items():
        first, *more = _wrap(value, max(_COLUMN_MIN, width() - indent))
        print(f"{name.ljust(indent)}{first}")
        for line in more:
            print(f"{' ' * indent}{line}")


def counted(count: int, what: str) -> str:
    """A number of things, in words: one of them has no ``s`` at its end."""
    return f"{count} {what}" + ("" if count == 1 else "s")


def print_note(text: str) -> None:
    """Print a remark on standard error, as :func:`print_facts` prints a fact: further lines stand in."""
    lines = _wrap(text, max(WIDTH_MIN, width() - len(_GAP)))
    note(f"\n{_GAP}".join(lines))


def bytes_text(count: int | None) -> str:
    """A number of bytes for people, in powers of 1024."""
    if count is None:
        return "-"
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def age_text(milliseconds: int | None) -> str:
    """A length of time for people: the two largest units that matter."""
    if milliseconds is None:
        return "never"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{days} d {hours % 24} h"


def _widest(cell: str) -> int:
    return max(map(len, cell.split("\n")))


def _wrap(cell: str, limit: int) -> list[str]:
    lines: list[str] = []
    for line in cell.split("\n"):
        lines += textwrap.wrap(line, max(1, limit), break_on_hyphens=False) or [""]
    return lines


def _shared(cells: Sequence[Sequence[str]], columns: int) -> list[int]:
    """Give each column what it wants as long as there is enough; else the widest ones get less, and equally much, but
    no less than their longest word wants: an address in two pieces is none."""
    places = range(len(cells[0]))
    natural = [max(_widest(row[place]) for row in cells) for place in places]
    floors = [max((len(word) for row in cells for word in row[place].split()), default=0) for place in places]
    if sum(floors) > columns:
        floors = [min(want, _COLUMN_MIN) for want in natural]
    left, waiting = columns - sum(floors), sorted(places, key=lambda place: natural[place] - floors[place])
    for number, place in enumerate(waiting):
        more = max(0, min(natural[place] - floors[place], left // (len(waiting) - number)))
        floors[place] += more
        left -= more
    return floors
