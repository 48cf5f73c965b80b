"""The engines that a simulation runs, taken from the registry, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stelae.config.contracts import EngineKind
from stelae.config.registry import Registry
from stelae.sim.log_profile import LOGS
from stelae.sim.profile import Profile
from stelae.sim.store_profile import STORES
from stelae.spi.consensus import REPLICATES, ConsensusEngine
from stelae.spi.copy import CopyTransport
from stelae.spi.policy import MasterPolicy
from stelae.spi.store import TabletStore
from stelae.spi.wal import WalEngine

COPY = "streaming"
"""The name of the copy transport."""

POLICY = "placement"
"""The name of the policy of masters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimEngines:
    """The engine classes under test."""

    wals: Mapping[str, type[WalEngine]]
    consensus: type[ConsensusEngine]
    copy: type[CopyTransport]
    stores: Mapping[str, type[TabletStore]]
    policy: type[MasterPolicy]

    @classmethod
    def installed(cls, consensus: str = "raft") -> SimEngines:
        """Return the installed engines; ``consensus`` is the name of the consensus engine.

        Raises:
            PluginError: an engine is missing or broken.
        """
        registry = Registry.installed()
        return cls(
            wals={name: registry.engine(EngineKind.WAL, name) for name in LOGS},
            consensus=registry.engine(EngineKind.CONSENSUS, consensus),
            copy=registry.engine(EngineKind.COPY, COPY),
            stores={name: registry.engine(EngineKind.STORE, name) for name in STORES},
            policy=registry.engine(EngineKind.POLICY, POLICY),
        )

    def wal_config(self, name: str, profile: Profile) -> Any:
        """Return the settings of a log engine: small segments, so that it rolls and collects often."""
        size = profile.segment_bytes
        return self.wals[name].Config(segment_bytes_max=size, segment_bytes_first=size // 2, prewrite_bytes_min=size)

    def consensus_config(self, profile: Profile) -> Any:
        """Return the settings of the consensus engine: small windows, so that they fill up."""
        if REPLICATES not in self.consensus.capabilities:
            return self.consensus.Config(proposals_pending_bytes_max=profile.append_bytes_max)
        return self.consensus.Config(
            election_timeout_ms=profile.election_timeout_ms,
            append_retry_ms=max(1, profile.election_timeout_ms // 4),
            append_bytes_max=profile.append_bytes_max,
            in_flight_messages_max=profile.in_flight_messages_max,
            clock_drift_ppm_max=profile.drift_ppm_max,
            member_join_timeout_ms=profile.member_join_timeout_ms,
        )

    def copy_config(self) -> Any:
        """Return the settings of the transport: few slots, and sessions that end soon."""
        return self.copy.Config(source_slots=2, target_slots=1, session_ttl_ms=2_000, chunk_bytes=4_096)

    def store_config(self, name: str, profile: Profile) -> Any:
        """Return the settings of a store: files with few rows, so that few entries fill many files."""
        config = self.stores[name].Config
        if name != "columnar":
            return config()
        store = profile.store
        return config(
            row_group_rows=store.row_group_rows,
            block_rows_max=4 * store.row_group_rows,
            level0_blocks_min=store.fresh_blocks_min,
            level0_blocks_max=2 * store.fresh_blocks_min,
            merge_step_rows=store.compact_rows,
            cache_bytes=4_096,
            compression="none",
        )
