"""The conformance suite for master policies, as a pytest class over a model of a cluster.

A policy's author subclasses ``PolicyConformance`` in a test module and overrides ``harness``::

    class TestMyPolicy(PolicyConformance):
        @pytest.fixture
        def harness(self) -> PolicyHarness:
            return PolicyHarness(MyPolicy)

The checks use only the contract. Hypothesis draws the clusters, the same ones in every run. A model carries out each
plan as the kernel does, and refuses what could cost a tablet its majority or its data, or would overfill a disk."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.policy_balance import BalanceChecks
from stelae.testing.conformance.policy_convergence import ConvergenceChecks
from stelae.testing.conformance.policy_harness import PolicyHarness
from stelae.testing.conformance.policy_marks import MarkChecks
from stelae.testing.conformance.policy_purity import PurityChecks
from stelae.testing.conformance.policy_repair import RepairChecks

__all__ = ["PolicyConformance", "PolicyHarness"]


class PolicyConformance(PurityChecks, RepairChecks, MarkChecks, BalanceChecks, ConvergenceChecks):
    """The suite. ``harness`` must be overridden."""

    @pytest.fixture
    def harness(self) -> PolicyHarness:
        """The policy under test."""
        raise LookupError("override `harness` with the policy under test")
