"""The conformance suite of log engines: behaviours W1-W6 and W8-W10, durability rules 3-7.

For an engine whose I/O all goes through ``Files`` (capability ``fake_files``)::

    class TestMyWal(WalConformance):
        @pytest.fixture
        def harness(self) -> VirtualHarness:
            return VirtualHarness(MyWal, MyWal.Config(...small sizes...))

For an engine whose library does its own input and output, ``WalNative`` with a ``NativeHarness``: it kills the
engine's process, and loses power at every call that was recorded of it; what this machine cannot show is printed
as *not proven here*.

An engine that begins commits (``WalEngine.begin``) goes through all of it once more as ``by_begun(MyWal)``; through
``WalBehaviour`` only, if a test of its own shows that begun commits leave the same bytes.

``WalBasics`` alone runs on any disk, also on a ``RealHarness``; ``WalScale``, a million entries, should, once.
Choose sizes so small that the scenarios of some hundred entries roll files: what never happens in a test is not
tested."""

from __future__ import annotations

from stelae.testing.conformance.wal_basics import WalBasics
from stelae.testing.conformance.wal_begun import WalBegun
from stelae.testing.conformance.wal_damage import WalDamage
from stelae.testing.conformance.wal_histories import WalHistories
from stelae.testing.conformance.wal_native import WalNative
from stelae.testing.conformance.wal_scale import WalScale


class WalBehaviour(WalBegun, WalHistories):
    """Basics, crashes, failures, begun commits, histories: all but files that change behind its back."""


class WalConformance(WalBehaviour, WalDamage):
    """Everything that a log engine has to do."""


__all__ = ["WalBasics", "WalBehaviour", "WalConformance", "WalNative", "WalScale"]
