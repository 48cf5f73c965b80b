"""The highest epoch of each source that has written to a tablet, so that earlier epochs are refused.

Like the exactly-once results, with which they are saved and copied, they are a pure function of the applied entries:
an epoch is raised when an entry is applied, and forgotten by the timestamps of entries only. So every replica refuses
the same operations (``durability.md`` rule 16; ``docs/adr/0064-source-epochs.md``)."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from stelae.host.hybrid_clock import LOGICAL_BITS
from stelae.spi.ids import SourceId
from stelae.spi.write import OpResult, SourceFence, StaleEpoch, refused

# These are not settings: a replica that forgets an epoch earlier than its peers would apply what they refuse.
SOURCE_AGE_MAX = 7 * 86_400 * 1_000_000 << LOGICAL_BITS  #: How long the epoch of a source without writes is known.
SOURCES_MAX = 65_536  #: Above it, a new source is refused until another one is forgotten.


class SourceEpochs:
    """The sources of one tablet. ``admit`` is called in log order."""

    def __init__(self) -> None:
        self._known: OrderedDict[SourceId, tuple[int, int]] = OrderedDict()
        """For each source its highest epoch, and the timestamp of its last entry. In the order of these timestamps."""

    def epoch_of(self, source: SourceId) -> int | None:
        """Return the highest epoch of a source; ``None``: it has not written, or is forgotten."""
        known = self._known.get(source)
        return None if known is None else known[0]

    def refusal(self, fence: SourceFence | None) -> OpResult | None:
        """Return the answer to an operation whose epoch is over, else ``None``. It is final, as epochs only rise."""
        if fence is None:
            return None
        known = self._known.get(fence.source)
        if known is None or known[0] <= fence.epoch:
            return None
        fact = f"source {fence.source!r} has begun epoch {known[0]}, and epoch {fence.epoch} may not write any more"
        return refused(StaleEpoch(f"{fact}; nothing was applied"))

    def have_room_for(self, fences: Iterable[SourceFence | None], now: Callable[[], int]) -> bool:
        """Return whether a leader may accept operations of these sources."""
        if len(self._known) < SOURCES_MAX:
            return True
        if all(fence is None or fence.source in self._known for fence in fences):
            return True
        _, oldest = next(iter(self._known.values()))
        return oldest + SOURCE_AGE_MAX < now()

    def admit(self, fence: SourceFence, timestamp: int) -> OpResult | None:
        """Raise the epoch of a source to that of an applied operation, or return the operation's refusal."""
        known = self._known
        while known and next(iter(known.values()))[1] + SOURCE_AGE_MAX < timestamp:
            known.popitem(last=False)
        refusal = self.refusal(fence)
        if refusal is None:
            known[fence.source] = (fence.epoch, timestamp)
            known.move_to_end(fence.source)
        return refusal

    def dump(self) -> list[tuple[SourceId, int, int]]:
        """Return each source with its epoch and the timestamp of its last entry, for :meth:`load`."""
        return [(source, epoch, timestamp) for source, (epoch, timestamp) in self._known.items()]

    @classmethod
    def load(cls, sources: Sequence[tuple[SourceId, int, int]]) -> Self:
        """Return what :meth:`dump` was called on."""
        found = cls()
        found._known.update((source, (epoch, timestamp)) for source, epoch, timestamp in sources)
        return found
