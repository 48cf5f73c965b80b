"""The messages between masters before the cluster exists, and before a new master joins it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stelae.spi.ids import NodeId, OpId

BOOTSTRAP = "master.bootstrap"


class BootstrapStage(StrEnum):
    """The state of a master's system tablet."""

    NEW = "NEW"  #: The master has no system tablet.
    EMPTY = "EMPTY"  #: It has one, has applied all of its log, and the catalog has no cluster.
    UNKNOWN = "UNKNOWN"  #: It has not applied all of its log yet, or has failed.
    BEGUN = "BEGUN"  #: The catalog has the cluster.


class BootstrapRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a master which masters it knows."""


class BootstrapAnswer(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The answer to ``BootstrapRequest``."""

    masters: tuple[tuple[NodeId, str], ...]  #: The masters in its node.toml, with addresses.
    members: tuple[NodeId, ...]  #: The members of its system tablet.
    stage: BootstrapStage
    #: Those of the members that have no vote, and never had one. Only they may begin with an empty directory.
    joining: tuple[NodeId, ...] = ()
    cluster_created_us: int = (
        0  #: When its cluster was put on record: two clusters with one id differ in it. 0: it was not.
    )
    #: The nodes that are no members and had a vote once, by its config.
    former_voters: tuple[NodeId, ...] = ()
    #: Its directory never had a system tablet. A replica that was deleted, or cannot be read, counts as one.
    is_new: bool = False
    #: The id of the config in force; ``None`` without one. Its term has the recovery that the log follows.
    config_id: OpId | None = None
