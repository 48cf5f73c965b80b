"""The replacements of the mutants in ``epoch_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from typing import Any

from stelae.spi.write import Answer
from tests.sim.mutations import Original


def admit_every_epoch(original: Original, self: Any, fence: Any, timestamp: int) -> None:
    original(self, fence, timestamp)


def save_no_epochs(original: Original, self: Any) -> list[Any]:
    return []


def refuse_what_is_being_applied(
    original: Original, self: Any, request: Any, sequences: Any, digests: Any, pending: Any
) -> None:
    first = sequences.first_sequence
    if len(digests) == 1 and self._results.answer(request.client_id, first, digests[0]) is None:
        refusal = self._results.sources.refusal(sequences.fence)
        if refusal is not None:
            pending.decide([Answer(first, 1, refusal)])
            return
    original(self, request, sequences, digests, pending)
