"""What masters ask each other before there is a cluster."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stelae.spi.ids import NodeId

FOUNDING = "master.founding"


class BootstrapStage(StrEnum):
    """How far a master is with its system tablet."""

    NEW = "NEW"  #: It has none.
    EMPTY = "EMPTY"  #: It has one, has applied all of its log, and no cluster is on record.
    UNKNOWN = "UNKNOWN"  #: Not all that it holds is applied, or it has failed: nobody can say yet.
    BEGUN = "BEGUN"  #: The cluster is on record.


class BootstrapRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a master whom it takes for the masters."""


class BootstrapAnswer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """``masters``: those that its node.toml lists, with addresses; ``members``: those of its system tablet."""

    masters: tuple[tuple[NodeId, str], ...]
    members: tuple[NodeId, ...]
    stage: BootstrapStage
