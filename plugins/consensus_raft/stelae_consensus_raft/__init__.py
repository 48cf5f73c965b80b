"""The consensus engine ``raft``: Raft as a pure core (see ``core``), registered through a hook."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.consensus import ConsensusEngine
from stelae.spi.hooks import hookimpl
from stelae_consensus_raft.engine import RaftEngine
from stelae_consensus_raft.transitions import TRANSITIONS, Cause

__all__ = ["TRANSITIONS", "Cause", "RaftEngine", "stelae_consensus_engines"]


@hookimpl
def stelae_consensus_engines() -> Sequence[type[ConsensusEngine]]:
    """Return the engine that this plugin registers."""
    return [RaftEngine]
