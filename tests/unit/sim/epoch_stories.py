"""Stories that violate an invariant of the epochs of sources."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stelae.host.exactly_once_results import ResultsTable
from stelae.host.superblock import Superblock
from stelae.spi.ids import ClientId, OpId, SourceId
from stelae.spi.payload import PayloadClient, PayloadSequenceRange, WritePayload
from stelae.spi.write import SourceFence
from tests.unit.sim.rig import LOG, Rig, applied, begin, committed, entry, write

JOB = SourceId("job")


def epochs(rig: Rig, *numbers: int) -> None:
    """Apply one write of each epoch, in this order, on node 0."""
    entries = [entry(1, index) for index in range(1, len(numbers) + 1)]
    committed(rig, *entries)
    for sequence, (one, number) in enumerate(zip(entries, numbers, strict=True), start=1):
        operation = write(sequence, value=f"v{sequence}")
        operation.fence = SourceFence(JOB, number)
        begin(rig, operation, sequence)
        request = msgspec.structs.replace(applied(one.op_id, sequence), fence=operation.fence)
        rig.apply(0, one, request)


def block(index: int, *numbers: int) -> Superblock:
    """A superblock with the results of writes of these epochs."""
    table = ResultsTable()
    for sequence, number in enumerate(numbers, start=1):
        run = PayloadSequenceRange(0, sequence, (1,), (0,), (), SourceFence(JOB, number))
        payload = WritePayload(1, (PayloadClient(ClientId("c"), 1),), (run,), ())
        table.record(table.admit(payload, sequence), [])
    return Superblock(tablet_id=LOG.tablet_id, flushed=OpId(1, index), results=table.dump())


def an_earlier_epoch_takes_effect_after_a_later_one(rig: Rig) -> None:
    epochs(rig, 1, 2, 1)


def a_superblock_forgets_an_epoch(rig: Rig) -> None:
    epochs(rig, 1, 2)
    rig.facts.saved(rig.world.nodes[0], block(2, 1, 1), [])


def a_superblock_that_knows_the_epochs(rig: Rig) -> None:
    """Epochs above the flushed entry are in the log."""
    epochs(rig, 1, 1, 2)
    rig.facts.saved(rig.world.nodes[0], block(2, 1, 1), [])
    rig.facts.saved(rig.world.nodes[0], block(3, 1, 1, 2), [])


FAULTY_EPOCHS: dict[str, list[Callable[[Rig], None]]] = {
    "epochs_only_rise": [an_earlier_epoch_takes_effect_after_a_later_one, a_superblock_forgets_an_epoch]
}
FAULTLESS_EPOCHS: list[Callable[[Rig], None]] = [a_superblock_that_knows_the_epochs]
