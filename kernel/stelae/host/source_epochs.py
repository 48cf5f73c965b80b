"""The highest epoch of each source that has written to a tablet, so that earlier epochs are refused.

Like the exactly-once results, with which they are saved and copied, they are a pure function of the applied entries:
an epoch is raised when an entry is applied, and forgotten by the timestamps of entries only. So every replica refuses
the same operations (``durability.md`` rule 16; ``docs/adr/0064-source-epochs.md``). A source that has ended, because
``EPOCH_LAST`` has begun, is forgotten earlier. Otherwise each single-use source would occupy an entry for days."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from stelae.host.hybrid_clock import LOGICAL_BITS
from stelae.spi.ids import SourceId
from stelae.spi.write import EPOCH_LAST, OpResult, SourceFence, StaleEpoch, refused

# These are not settings: a replica that forgets an epoch earlier than its peers would apply what they refuse.
SOURCE_AGE_MAX = 7 * 86_400 * 1_000_000 << LOGICAL_BITS  #: How long the epoch of a source without writes is known.
ENDED_AGE_MAX = 86_400 * 1_000_000 << LOGICAL_BITS  #: The same for a source that has ended (``EPOCH_LAST``).
SOURCES_MAX = 65_536  #: Above it, a new source is refused until another one is forgotten.


class SourceEpochs:
    """The sources of one tablet. ``admit`` is called in log order."""

    def __init__(self) -> None:
        self._known: OrderedDict[SourceId, tuple[int, int]] = OrderedDict()
        """For each source its highest epoch, and the timestamp of its last entry. In the order of these timestamps."""
        self._ended: OrderedDict[SourceId, tuple[int, int]] = OrderedDict()
        """The same for the sources that have ended, which are not in ``_known``."""
        self._ages = ((self._known, SOURCE_AGE_MAX), (self._ended, ENDED_AGE_MAX))

    def epoch_of(self, source: SourceId) -> int | None:
        """Return the highest epoch of a source; ``None``: it has not written, or is forgotten."""
        known = self._known.get(source) or self._ended.get(source)
        return None if known is None else known[0]

    def refusal(self, fence: SourceFence | None) -> OpResult | None:
        """Return the answer to an operation whose epoch is over, else ``None``. It is final, as epochs only rise."""
        if fence is None:
            return None
        known = self.epoch_of(fence.source)
        if known is None or known <= fence.epoch:
            return None
        fact = f"the epoch of source {fence.source!r} is over: it was completed, or a later one has begun"
        return refused(StaleEpoch(f"{fact}; nothing was applied"))

    def have_room_for(self, fences: Iterable[SourceFence | None], now: Callable[[], int]) -> bool:
        """Return whether a leader may accept operations of these sources."""
        if len(self._known) + len(self._ended) < SOURCES_MAX:
            return True
        if all(fence is None or self.epoch_of(fence.source) is not None for fence in fences):
            return True
        present = now()
        return any(_oldest(sources, present) + age < present for sources, age in self._ages)

    def admit(self, fence: SourceFence, timestamp: int) -> OpResult | None:
        """Raise the epoch of a source to that of an applied operation, or return the operation's refusal."""
        for sources, age in self._ages:
            while _oldest(sources, timestamp) + age < timestamp:
                sources.popitem(last=False)
        refusal = self.refusal(fence)
        if refusal is None:
            self._known.pop(fence.source, None)
            self._ended.pop(fence.source, None)
            self._with(fence.epoch)[fence.source] = (fence.epoch, timestamp)
        return refusal

    def _with(self, epoch: int) -> OrderedDict[SourceId, tuple[int, int]]:
        """Return the table that holds the sources with this highest epoch."""
        return self._ended if epoch == EPOCH_LAST else self._known

    def dump(self) -> list[tuple[SourceId, int, int]]:
        """Return each source with its epoch and the timestamp of its last entry, for :meth:`load`."""
        every = (*self._known.items(), *self._ended.items())
        return [(source, epoch, timestamp) for source, (epoch, timestamp) in every]

    @classmethod
    def load(cls, sources: Sequence[tuple[SourceId, int, int]]) -> Self:
        """Rebuild the sources from the result of :meth:`dump`."""
        found = cls()
        for source, epoch, timestamp in sources:
            found._with(epoch)[source] = (epoch, timestamp)
        return found


def _oldest(sources: OrderedDict[SourceId, tuple[int, int]], otherwise: int) -> int:
    """Return the timestamp of the source that has been silent for longest; ``otherwise``: there are none."""
    return next(iter(sources.values()))[1] if sources else otherwise
