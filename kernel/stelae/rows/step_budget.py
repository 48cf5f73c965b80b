"""The limit in bytes on one step of a scan, a diff or an export.

A step has at most ``BATCH_ROWS_MAX`` rows and about ``BATCH_BYTES_MAX`` bytes. A cell may have megabytes, and thousands
of such rows fit neither into a message nor into memory."""

from stelae.spi.store import BATCH_BYTES_MAX


class StepBudget:
    """The bytes that are left in a step. A row above the limit is a step of its own."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used = 0

    def takes(self, size_bytes: int) -> bool:
        """Take bytes from the budget, and return true if they fit. The first bytes of a step always do."""
        used = self._used + size_bytes
        if self._used and used > BATCH_BYTES_MAX:
            return False
        self._used = used
        return True
