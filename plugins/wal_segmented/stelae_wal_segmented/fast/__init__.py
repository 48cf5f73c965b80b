"""The fast kind of the engine, for ``[log] fast = true``: the files of collected segments are used again, groups are
written as whole blocks, and the event loop begins commits. The plain engine imports nothing of it."""

from __future__ import annotations

from stelae_wal_segmented.fast.engine import FastSegmentedWal

__all__ = ["FastSegmentedWal"]
