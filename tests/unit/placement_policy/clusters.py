"""Snapshots for the tests of the policy: short to write, and easy to read in a failure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stelae.spi.policy import NodeHealth
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_model import GIB, ModelCluster, node_view
from stelae_placement_policy import PlacementPolicy
from stelae_placement_policy.config import PlacementConfig
from stelae_placement_policy.node_picker import Picker
from stelae_placement_policy.numbered_snapshot import NumberedSnapshot
from stelae_placement_policy.reasons import Reasons
from stelae_placement_policy.repair import Repair

__all__ = ["GIB", "ModelCluster", "NodeHealth", "cluster", "harness", "node_view", "repair_of", "survey_of"]


def cluster(*locations: str, free_bytes: int = 100 * GIB, copy_rounds: int = 1) -> ModelCluster:
    """Live nodes in these locations, numbered from 1."""
    nodes = (node_view(number, location, free_bytes=free_bytes) for number, location in enumerate(locations, 1))
    return ModelCluster(nodes, copy_rounds)


def harness(**settings: Any) -> PolicyHarness:
    """The policy with some settings of its own."""
    return PolicyHarness(PlacementPolicy, replace(PlacementConfig(), **settings))


def survey_of(model: ModelCluster) -> NumberedSnapshot:
    """The survey of a cluster under default settings."""
    return NumberedSnapshot(model.snapshot(), PlacementConfig())


def repair_of(model: ModelCluster, rng: Any) -> Repair:
    """The repair of a cluster's tablets."""
    survey = survey_of(model)
    return Repair(survey, Picker(survey, rng), Reasons(survey))
