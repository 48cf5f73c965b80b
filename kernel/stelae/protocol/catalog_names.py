"""Names and states of the catalog that clients and masters share: table ids, table, tablet and server states."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

from stelae.spi.ids import TabletId

SYSTEM_TABLET = TabletId("sys-catalog")
"""The tablet that holds the catalog. The masters are its members."""

TableId = NewType("TableId", str)
"""The permanent id of a table: 32 lower-case hexadecimal digits. The table's name may change."""


class TableState(StrEnum):
    """The state of a table."""

    RUNNING = "RUNNING"
    ALTERING = "ALTERING"  #: Some tablet has not reported the newest schema yet, or does not exist yet.
    SOFT_DELETED = "SOFT_DELETED"  #: Clients cannot use it. Its replicas stay, and it can be recalled.
    REMOVED = "REMOVED"  #: Terminal.


class TabletState(StrEnum):
    """The state of a tablet."""

    PREPARING = "PREPARING"  #: It is in the catalog and has no replicas yet.
    CREATING = "CREATING"  #: It has its initial members. No leader has been reported yet.
    RUNNING = "RUNNING"
    REPLACED = "REPLACED"  #: It was not created in time, and another tablet has its partition. Terminal.
    REMOVED = "REMOVED"  #: DELETED in the seed. Terminal.


class ServerMode(StrEnum):
    """The mode that an operator has set for a server."""

    NORMAL = "NORMAL"
    RETIRING = "RETIRING"
    MAINTENANCE = "MAINTENANCE"
