"""Planted bugs in the epochs of sources; part of ``mutants.MUTANTS``."""

from __future__ import annotations

from tests.sim import epoch_mutations as mutations
from tests.sim.planted_bug import Mutant

EPOCHS = "stelae.host.source_epochs:SourceEpochs"

EPOCH_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="epochs: an operation that was proposed before the next epoch began is applied after it",
        rule="durability 16, ADR 64",
        target=f"{EPOCHS}.admit",
        replacement=mutations.admit_every_epoch,
        invariant="epochs_only_rise",
    ),
    Mutant(
        name="epochs: a superblock does not have them",
        rule="durability 16, ADR 64",
        target=f"{EPOCHS}.dump",
        replacement=mutations.save_no_epochs,
        invariant="epochs_only_rise",
        seeds_max=8,
    ),
)
