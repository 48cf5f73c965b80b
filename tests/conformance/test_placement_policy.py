"""The policy ``placement`` holds to the contract of policies."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.policy import PolicyConformance, PolicyHarness
from stelae_placement_policy import PlacementPolicy


class TestPlacement(PolicyConformance):
    @pytest.fixture
    def harness(self) -> PolicyHarness:
        return PolicyHarness(PlacementPolicy)
