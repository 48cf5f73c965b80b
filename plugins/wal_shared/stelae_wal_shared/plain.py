"""The engine as it is registered: it writes plainly and names the class for ``[log] fast = true``.

It is a class of its own so that neither ``engine`` nor the fast code needs to import the other."""

from __future__ import annotations

from stelae.spi.wal import WalEngine
from stelae_wal_shared.engine import SharedEngine


class SharedWal(SharedEngine):
    """The log engine ``shared``. Created by ``open`` only."""

    @classmethod
    def fast(cls) -> type[WalEngine]:
        """Return the class for ``[log] fast = true``. Its code is imported here and nowhere else."""
        from stelae_wal_shared.fast import FastSharedWal

        return FastSharedWal
