"""How much one step of an engine may take: of a scan, a diff or an export.

Rows are counted by ``BATCH_ROWS_MAX`` and weighed by ``BATCH_BYTES_MAX``: a cell may have megabytes, and thousands of
such rows fit neither a frame nor memory."""

from stelae.spi.store import BATCH_BYTES_MAX


class StepRoom:
    """The bytes that are left in a step. A single row above the limit passes alone."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used = 0

    def takes(self, size_bytes: int) -> bool:
        """Whether so many bytes fit, which are then taken; the first that are asked for always do."""
        used = self._used + size_bytes
        if self._used and used > BATCH_BYTES_MAX:
            return False
        self._used = used
        return True
