"""The conformance suite of log engines: behaviours W1-W6 and W8-W10, durability rules 3-7.

For an engine whose I/O all goes through ``Files`` (capability ``fake_files``)::

    class TestMyWal(WalConformance):
        @pytest.fixture
        def harness(self) -> VirtualHarness:
            return VirtualHarness(MyWal, MyWal.Config(...small sizes...))

For an engine whose library does its own input and output, use ``WalNative`` with a ``NativeHarness``. It kills the
engine's process, and loses power at every recorded call. A check that this machine cannot run is printed as *not
proven here*.

For an engine that begins commits (``WalEngine.begin``), run the suite once more with ``with_begun_commits(MyWal)``.
``WalBehaviour`` is enough if a test of the engine shows that begun commits leave the same bytes.

``WalBasics`` runs on any disk, also on a ``RealHarness``. Run ``WalScale``, a log of a million entries, on a
``RealHarness``. Choose sizes so small that scenarios of some hundred entries roll files."""

from __future__ import annotations

from stelae.testing.conformance.wal_basics import WalBasics
from stelae.testing.conformance.wal_begun import WalBegun
from stelae.testing.conformance.wal_damage import WalDamage
from stelae.testing.conformance.wal_histories import WalHistories
from stelae.testing.conformance.wal_native import WalNative
from stelae.testing.conformance.wal_scale import WalScale


class WalBehaviour(WalBegun, WalHistories):
    """Basics, crashes, failures, begun commits and histories: everything except damaged files."""


class WalConformance(WalBehaviour, WalDamage):
    """The whole suite."""


__all__ = ["WalBasics", "WalBehaviour", "WalConformance", "WalNative", "WalScale"]
