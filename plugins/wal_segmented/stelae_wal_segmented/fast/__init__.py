"""The fast class of the engine, for ``[log] fast = true``. It uses the files of collected segments again, writes groups
as whole blocks, and lets the event loop begin commits. The plain engine imports nothing from this package."""

from __future__ import annotations

from stelae_wal_segmented.fast.engine import FastSegmentedWal

__all__ = ["FastSegmentedWal"]
