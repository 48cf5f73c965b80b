"""The consensus engine ``local``: one replica without peers, as a pure core (see ``core``)."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.consensus import ConsensusEngine
from stelae.spi.hooks import hookimpl
from stelae_consensus_local.engine import LocalEngine

__all__ = ["LocalEngine", "stelae_consensus_engines"]


@hookimpl
def stelae_consensus_engines() -> Sequence[type[ConsensusEngine]]:
    """Return the engine that this plugin registers."""
    return [LocalEngine]
