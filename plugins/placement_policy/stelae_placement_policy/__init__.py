"""The master policy ``placement``: a pure function from what the masters see to what should change."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.hooks import hookimpl
from stelae.spi.policy import MasterPolicy
from stelae_placement_policy.policy import PlacementPolicy

__all__ = ["PlacementPolicy", "stelae_master_policies"]


@hookimpl
def stelae_master_policies() -> Sequence[type[MasterPolicy]]:
    """Offer the policy ``placement``."""
    return [PlacementPolicy]
