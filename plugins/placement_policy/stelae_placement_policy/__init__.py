"""The master policy ``placement``: a pure function from a snapshot of the cluster to the changes that it needs."""

from __future__ import annotations

from collections.abc import Sequence

from stelae.spi.hooks import hookimpl
from stelae.spi.policy import MasterPolicy
from stelae_placement_policy.policy import PlacementPolicy

__all__ = ["PlacementPolicy", "stelae_master_policies"]


@hookimpl
def stelae_master_policies() -> Sequence[type[MasterPolicy]]:
    """Return the policy that this plugin registers."""
    return [PlacementPolicy]
