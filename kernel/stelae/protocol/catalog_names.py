"""Words that clients and masters share: table ids, states, and what an operator wants of a server."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

from stelae.spi.ids import TabletId

SYSTEM_TABLET = TabletId("sys-catalog")
"""The tablet that holds the catalog. The masters are its members."""

TableId = NewType("TableId", str)
"""Permanent name of a table: 32 lower-case hexadecimal digits; what people call it may change."""


class TableState(StrEnum):
    """Where a table is in its life."""

    RUNNING = "RUNNING"
    ALTERING = "ALTERING"  #: Some tablet has yet to report the newest schema, or to come into being.
    SOFT_DELETED = "SOFT_DELETED"  #: Gone for clients; its replicas stay, and it can be recalled.
    REMOVED = "REMOVED"  #: Terminal.


class TabletState(StrEnum):
    """Where a tablet is in its life."""

    PREPARING = "PREPARING"  #: On record, without replicas yet.
    CREATING = "CREATING"  #: Has its initial members; no leader has been reported.
    RUNNING = "RUNNING"
    REPLACED = "REPLACED"  #: Was not created in time, and another one stands for its partition. Terminal.
    REMOVED = "REMOVED"  #: The seed's DELETED. Terminal.


class ServerMode(StrEnum):
    """What an operator wants of a server."""

    NORMAL = "NORMAL"
    RETIRING = "RETIRING"
    MAINTENANCE = "MAINTENANCE"
