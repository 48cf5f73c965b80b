"""The conformance suite for consensus engines, as a pytest class over a cluster of cores that can crash and restart.

An engine's author subclasses ``ConsensusConformance`` in a test module and overrides ``harness``::

    class TestMyEngine(ConsensusConformance):
        @pytest.fixture
        def harness(self) -> ConsensusHarness:
            return ConsensusHarness(MyEngine, MyEngine.Config(), election_timeout_us=1_000_000)

The checks use only the contract; they never look into messages.

Every engine must serve a group with one member. Checks with several members are skipped, with the reason, unless the
engine declares ``replicates``. An engine that lacks ``replicates`` or ``changes_members`` gets further checks: it must
refuse what it cannot do."""

from __future__ import annotations

import pytest

from stelae.testing.conformance.consensus_driver import DriverChecks
from stelae.testing.conformance.consensus_elections import ElectionChecks
from stelae.testing.conformance.consensus_failures import ConsensusFailureChecks
from stelae.testing.conformance.consensus_fixed_members import FixedMembersChecks
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_lagging import LaggingChecks
from stelae.testing.conformance.consensus_log import LogChecks
from stelae.testing.conformance.consensus_member_refusals import MemberRefusalChecks
from stelae.testing.conformance.consensus_members import MemberChecks
from stelae.testing.conformance.consensus_recovery import RecoveryChecks
from stelae.testing.conformance.consensus_restore import RestoreChecks
from stelae.testing.conformance.consensus_service import ServiceChecks
from stelae.testing.conformance.consensus_single_voter import SingleVoterChecks
from stelae.testing.conformance.consensus_transfer import TransferChecks
from stelae.testing.conformance.consensus_witnesses import WitnessChecks

__all__ = ["ConsensusConformance", "ConsensusHarness"]


class ConsensusConformance(
    ElectionChecks,
    LogChecks,
    LaggingChecks,
    ServiceChecks,
    TransferChecks,
    MemberChecks,
    MemberRefusalChecks,
    WitnessChecks,
    RecoveryChecks,
    ConsensusFailureChecks,
    DriverChecks,
    RestoreChecks,
    SingleVoterChecks,
    FixedMembersChecks,
):
    """The suite. ``harness`` must be overridden."""

    @pytest.fixture
    def harness(self) -> ConsensusHarness:
        """The engine under test."""
        raise LookupError("override `harness` with the engine under test")
