"""Layout of tables and facts to the width of the terminal, and numbers in units for people.

The width is that of the terminal, or the environment variable ``COLUMNS``. If the output is not a terminal, nothing is
wrapped: each row is one line, as ``grep`` and ``awk`` expect. Programs should use ``--json``."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

from stelae.cli.kit.output import note

WIDTH_MIN = 40
"""Smallest width. On a narrower terminal the lines are too long, which is more readable than one letter per line."""
_COLUMN_MIN = 6
_GAP = "  "
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def width() -> int:
    """Return the number of characters that fit on a line."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return sys.maxsize
    return max(WIDTH_MIN, shutil.get_terminal_size((80, 24)).columns)


def print_fitted(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table. Line breaks in cells are kept, and cells that are too wide for the terminal are wrapped."""
    print("\n".join(fitted(headers, rows, width())))


def fitted(headers: Sequence[str], rows: Sequence[Sequence[object]], columns: int) -> list[str]:
    """Return the lines of a table, at most ``columns`` characters wide."""
    cells = [[str(cell) for cell in row] for row in (headers, *rows)]
    widths = _column_widths(cells, columns - len(_GAP) * (len(headers) - 1))
    lines = []
    for row in cells:
        wrapped = [_wrap(cell, limit) for cell, limit in zip(row, widths, strict=True)]
        for number in range(max(len(cell) for cell in wrapped)):
            parts = [cell[number] if number < len(cell) else "" for cell in wrapped]
            padded = [part.ljust(limit) for part, limit in zip(parts, widths, strict=True)]
            lines.append(_GAP.join(padded).rstrip())
    return lines


def print_facts(facts: Mapping[str, object]) -> None:
    """Print each fact on a line after its name. Facts with empty values are omitted."""
    shown = {name: str(value) for name, value in facts.items() if str(value)}
    indent = max(map(len, shown), default=0) + len(_GAP)
    for name, value in shown.items():
        first, *more = _wrap(value, max(_COLUMN_MIN, width() - indent))
        print(f"{name.ljust(indent)}{first}")
        for line in more:
            print(f"{' ' * indent}{line}")


def print_note(text: str) -> None:
    """Print a remark on standard error. Further lines are indented, as in :func:`print_facts`."""
    lines = _wrap(text, max(WIDTH_MIN, width() - len(_GAP)))
    note(f"\n{_GAP}".join(lines))


def bytes_text(count: int | None) -> str:
    """Return a number of bytes in binary units, such as ``1.5 MiB``. ``None``: ``-``."""
    if count is None:
        return "-"
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def age_text(milliseconds: int | None) -> str:
    """Return a duration in its two largest units, such as ``3 min 5 s``. ``None``: ``never``."""
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


def _column_widths(cells: Sequence[Sequence[str]], columns: int) -> list[int]:
    """Return the width of each column.

    A column has its natural width if there is room. Otherwise the widest columns share the remaining room equally, but
    are not narrower than their longest word, so that addresses are not broken."""
    indexes = range(len(cells[0]))
    natural = [max(_widest(row[index]) for row in cells) for index in indexes]
    widths = [max((len(word) for row in cells for word in row[index].split()), default=0) for index in indexes]
    if sum(widths) > columns:
        widths = [min(width, _COLUMN_MIN) for width in natural]
    left, waiting = columns - sum(widths), sorted(indexes, key=lambda index: natural[index] - widths[index])
    for number, index in enumerate(waiting):
        more = max(0, min(natural[index] - widths[index], left // (len(waiting) - number)))
        widths[index] += more
        left -= more
    return widths
