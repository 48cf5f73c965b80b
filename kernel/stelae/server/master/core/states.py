"""States of tables and tablets in the catalog, and every change of them, as total tables.

The names are those of the source (appendix B). Its UNKNOWN and a table's PREPARING exist only while a change is
planned. Here that is a value of the leader, so the catalog never has them. ``REPLACED`` and ``REMOVED`` are
terminal: no cause changes them, so a deletion may rely on them (``durability.md`` rule 27). The diagrams of the docs
are generated from these tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from stelae.protocol.catalog_names import TableState, TabletState


class TableCause(StrEnum):
    """The causes that change the state of a table."""

    RENAME = "RENAME"
    ALTER = "ALTER"
    SETTLED = "SETTLED"
    """Every tablet runs, and its leader has reported the newest schema."""
    SOFT_DELETE = "SOFT_DELETE"
    RECALL = "RECALL"
    """The table becomes ALTERING, because a change may be in progress. Without one it settles at once."""
    EXPIRED = "EXPIRED"
    """The time in which a table can be recalled is over."""
    DELETE = "DELETE"


class TabletCause(StrEnum):
    """The causes that change the state of a tablet."""

    PLACED = "PLACED"
    """The policy has named its first members."""
    ELECTED = "ELECTED"
    """A leader has been reported, or a config that one has committed."""
    TIMED_OUT = "TIMED_OUT"
    REPORTED = "REPORTED"
    """A newer committed config has been reported."""
    DROPPED = "DROPPED"
    """Its table was removed, or its range dropped."""


IGNORED: Final = None
"""Marks a cause that does nothing in a state."""

TERMINAL_TABLE: Final = frozenset({TableState.REMOVED})
TERMINAL_TABLET: Final = frozenset({TabletState.REPLACED, TabletState.REMOVED})


def _table(*targets: TableState | None) -> dict[TableState, TableState | None]:
    return dict(zip(TableState, targets, strict=True))


def _tablet(*targets: TabletState | None) -> dict[TabletState, TabletState | None]:
    return dict(zip(TabletState, targets, strict=True))


_RUN, _ALTER, _SOFT, _GONE = TableState

TABLE_MOVES: Final[Mapping[TableCause, Mapping[TableState, TableState | None]]] = MappingProxyType(
    {
        #                       RUNNING  ALTERING  SOFT_DELETED  REMOVED
        TableCause.RENAME: _table(_RUN, _ALTER, IGNORED, IGNORED),
        TableCause.ALTER: _table(_ALTER, _ALTER, IGNORED, IGNORED),
        TableCause.SETTLED: _table(IGNORED, _RUN, IGNORED, IGNORED),
        TableCause.SOFT_DELETE: _table(_SOFT, _SOFT, IGNORED, IGNORED),
        TableCause.RECALL: _table(IGNORED, IGNORED, _ALTER, IGNORED),
        TableCause.EXPIRED: _table(IGNORED, IGNORED, _GONE, IGNORED),
        TableCause.DELETE: _table(_GONE, _GONE, _GONE, IGNORED),
    }
)
"""``TABLE_MOVES[cause][state]`` is the state afterwards, or ``IGNORED``."""

_PREP, _MAKE, _SERVE, _REPL, _REM = TabletState

TABLET_MOVES: Final[Mapping[TabletCause, Mapping[TabletState, TabletState | None]]] = MappingProxyType(
    {
        #                        PREPARING CREATING RUNNING  REPLACED REMOVED
        TabletCause.PLACED: _tablet(_MAKE, IGNORED, IGNORED, IGNORED, IGNORED),
        TabletCause.ELECTED: _tablet(IGNORED, _SERVE, IGNORED, IGNORED, IGNORED),
        TabletCause.TIMED_OUT: _tablet(IGNORED, _REPL, IGNORED, IGNORED, IGNORED),
        TabletCause.REPORTED: _tablet(IGNORED, IGNORED, _SERVE, IGNORED, IGNORED),
        TabletCause.DROPPED: _tablet(_REM, _REM, _REM, IGNORED, IGNORED),
    }
)
"""``TABLET_MOVES[cause][state]`` is the state afterwards, or ``IGNORED``."""


def table_may_become(before: TableState | None, after: TableState) -> bool:
    """Return whether a cause leads from one state to the other, or they are equal. ``None``: no table.

    The exception is a table that is adopted (ADR 83): it may begin as ALTERING, and its tablets begin as RUNNING."""
    if before is None:
        return after is TableState.RUNNING
    return before is after or any(row[before] is after for row in TABLE_MOVES.values())


def tablet_may_become(before: TabletState | None, after: TabletState) -> bool:
    """Return whether a cause leads from one state to the other, or they are equal. ``None``: no tablet."""
    if before is None:
        return after is TabletState.PREPARING
    return before is after or any(row[before] is after for row in TABLET_MOVES.values())
