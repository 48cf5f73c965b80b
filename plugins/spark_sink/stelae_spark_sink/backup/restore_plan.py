"""How the rows of each backup of a chain become rows of the restored table. Pure.

The restored table has the columns of the last backup of the chain. A column is known by its id, so it is found in the
earlier backups under whatever name it had. A backup that is older than a column has no values of it; its rows have the
value that the table gave to rows older than the column, which the first backup with the column has recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stelae_spark_sink.backup.manifest import Manifest

INTERIM_MARK = ".restoring-"
_NAME_LENGTH_MAX = 256
_ID_LENGTH = 12


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where the values of a column of the restored table come from."""

    name: str  #: Name in the restored table.
    type: str
    stored_as: str  #: Name in the files; empty: the files do not have the column.
    value: Any = None  #: The value for all rows, as in ``json_values``, if the files do not have the column.


def column_sources(chain: Sequence[Manifest], number: int) -> list[ColumnSource]:
    """Return the source of each column of the restored table for the rows of one backup.

    Args:
        chain: the manifests from the full backup to the last one.
        number: position in the chain.
    """
    found = []
    for column in chain[-1].columns:
        first = next(one for one in chain[number:] if column.id in one.by_id)
        known = first.by_id[column.id]
        if first is chain[number]:
            found.append(ColumnSource(column.name, column.type, known.stored_as))
        else:
            found.append(ColumnSource(column.name, column.type, "", known.in_older_rows))
    return found


def interim_name(table: str, backup_id: str) -> str:
    """Return the name of a table that is being restored: the same for each attempt to restore a backup under a name."""
    mark = INTERIM_MARK + backup_id[:_ID_LENGTH]
    return table[: _NAME_LENGTH_MAX - len(mark)] + mark


def source_name(backup_id: str) -> str:
    """Return the source, for epochs, of the writes of a restore."""
    return f"restore/{backup_id}"


def epoch_of(number: int, *, deletes: bool) -> int:
    """Return the epoch that writes the rows of a backup: first its deleted rows, then the others."""
    return 2 * number + (not deletes)
