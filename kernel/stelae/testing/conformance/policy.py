"""What every master policy must hold to, as a pytest class over a model of a cluster.

A policy's author subclasses ``PolicyConformance`` in a test module and overrides ``harness``::

    class TestMine(PolicyConformance):
        @pytest.fixture def harness(self) -> PolicyHarness:
            return PolicyHarness(MyPolicy)

The checks use the contract alone. Clusters are drawn by Hypothesis, the same ones in every run; a model carries out
what is planned, as a kernel would, and refuses what would cost a tablet its majority, its data or its room."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.policy_balance import BalanceChecks
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_pure import PureChecks
from stelae.testing.conformance.policy_repair import RepairChecks
from stelae.testing.conformance.policy_rest import RestChecks

__all__ = ["PolicyConformance", "PolicyHarness"]


class PolicyConformance(PureChecks, RepairChecks, BalanceChecks, RestChecks):
    """The suite. ``harness`` must be overridden."""

    @pytest.fixture
    def harness(self) -> PolicyHarness:
        """The policy under test."""
        raise LookupError("override `harness` with the policy under test")
