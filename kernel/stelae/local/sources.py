"""What the demo loads: rows, their columns, and their key.

The data set that needs no file is Python's own table of named characters."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSource:
    """Rows to load, in the order of their columns.

    Attributes:
        name: what it is, for people.
        table: what its table is called.
        columns: ``{"name", "type", "nullable"}`` of each column.
        key: names of the key columns.
        rows: one tuple per row, of plain values (``stelae.spi.schema``); keys are unique.
    """

    name: str
    table: str
    columns: Sequence[Mapping[str, Any]]
    key: Sequence[str]
    rows: Sequence[tuple[Any, ...]]

    def keys(self) -> list[tuple[Any, ...]]:
        """The key of each row, in the order of the rows."""
        names = [column["name"] for column in self.columns]
        places = [names.index(name) for name in self.key]
        return [tuple(row[place] for place in places) for row in self.rows]


CHARACTER_COLUMNS: tuple[Mapping[str, Any], ...] = (
    {"name": "code_point", "type": "int32", "nullable": False},
    {"name": "name", "type": "string", "nullable": False},
    {"name": "category", "type": "string", "nullable": False},
    {"name": "bidirectional", "type": "string", "nullable": False},
    {"name": "combining", "type": "int16", "nullable": False},
    {"name": "numeric", "type": "double", "nullable": True},
    {"name": "decomposition", "type": "string", "nullable": False},
)


def characters() -> DemoSource:
    """Every named character that this interpreter knows: about 140 000 rows."""
    rows = []
    for code_point in range(sys.maxunicode + 1):
        character = chr(code_point)
        name = unicodedata.name(character, None)
        if name is not None:
            rows.append(
                (
                    code_point,
                    name,
                    unicodedata.category(character),
                    unicodedata.bidirectional(character),
                    unicodedata.combining(character),
                    unicodedata.numeric(character, None),
                    unicodedata.decomposition(character),
                )
            )
    return DemoSource(
        name=f"named characters of Unicode {unicodedata.unidata_version}",
        table="characters",
        columns=CHARACTER_COLUMNS,
        key=("code_point",),
        rows=rows,
    )
