"""Which engines a simulation runs, and what they are told: fetched from the registry, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stelae.config.contracts import EngineKind
from stelae.config.registry import Registry
from stelae.sim.profile import Profile
from stelae.spi.consensus import ConsensusEngine
from stelae.spi.store import TabletStore
from stelae.spi.wal import WalEngine


@dataclass(frozen=True, slots=True, kw_only=True)
class SimEngines:
    """The engine classes under test."""

    wal: type[WalEngine]
    consensus: type[ConsensusEngine]
    store: type[TabletStore]

    @classmethod
    def installed(cls) -> SimEngines:
        """Return the default engines as an installation has them.

        Raises:
            PluginError: one of them is missing or broken.
        """
        registry = Registry.installed()
        return cls(
            wal=registry.engine(EngineKind.WAL, "segmented"),
            consensus=registry.engine(EngineKind.CONSENSUS, "raft"),
            store=registry.engine(EngineKind.STORE, "memory"),
        )

    def wal_config(self, profile: Profile) -> Any:
        """Settings of the log engine: small segments, so that it rolls and collects often."""
        size = profile.segment_bytes
        return self.wal.Config(segment_bytes_max=size, segment_bytes_first=size // 2)

    def consensus_config(self, profile: Profile) -> Any:
        """Settings of the consensus engine: small windows, so that they fill."""
        return self.consensus.Config(
            election_timeout_ms=profile.election_timeout_ms,
            append_retry_ms=max(1, profile.election_timeout_ms // 4),
            append_bytes_max=profile.append_bytes_max,
            in_flight_messages_max=profile.in_flight_messages_max,
        )
