"""The settings of the local engine: the keys of ``[consensus.local]`` in ``node.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConfig:
    """The settings of a node's local tablets."""

    proposals_pending_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        low=1,
        high=1 << 36,
        reason="bytes that are proposed and not yet durable; further proposals are refused as OVERLOADED",
    )
