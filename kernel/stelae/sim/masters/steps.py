"""The steps of a change at which a master can be struck, and the armed strike."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class ChangeStep(StrEnum):
    """Where a master is within the path of a change (``stelae.server.master.core.operations``)."""

    PLANNED = "planned"  #: Before what it has planned is handed to the log.
    REPLICATED = "replicated"  #: Handed to the log, and nothing heard of it.
    APPLIED = "applied"  #: Committed and applied, before anybody is answered or asked to act.
    ANSWERED = "answered"  #: The client is answered; no server is asked to act yet.
    ACTED = "acted"  #: One server is asked to act, others are not.


class Strike:
    """Strikes once, when a step has been passed so many times."""

    def __init__(self) -> None:
        self._step: ChangeStep | None = None
        self._left = 0
        self._action: Callable[[], None] = lambda: None

    def arm(self, step: ChangeStep, passes: int, action: Callable[[], None]) -> None:
        """Have ``action`` run at the given pass from now; one that is armed already is forgotten."""
        self._step, self._left, self._action = step, passes, action

    def passes(self, step: ChangeStep) -> None:
        """Say that a step is passed; when this returns, the master may be gone."""
        if step is not self._step:
            return
        self._left -= 1
        if self._left <= 0:
            self._step = None
            self._action()
