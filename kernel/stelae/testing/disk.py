"""The virtual disk, for tests of engines and of anything else that takes a ``Files``."""

from __future__ import annotations

from stelae.sim.disk import SECTOR_BYTES, PowerLost, Survival, VirtualDisk, VirtualFile, VirtualLock

__all__ = ["SECTOR_BYTES", "PowerLost", "Survival", "VirtualDisk", "VirtualFile", "VirtualLock"]
