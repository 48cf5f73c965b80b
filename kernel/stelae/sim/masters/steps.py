"""The steps of a change at which a fault can strike a master, and the armed fault."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum


class ChangeStep(StrEnum):
    """A step of a master on the path of a change (``stelae.server.master.core.operations``)."""

    PLANNED = "planned"  #: The change is planned and not passed to the log yet.
    REPLICATED = "replicated"  #: The change is passed to the log, and its outcome is unknown.
    APPLIED = "applied"  #: The change is committed and applied, before answers and actions are sent.
    ANSWERED = "answered"  #: The client has its answer, and no action is sent yet.
    ACTED = "acted"  #: One action is sent, others are not.


class Strike:
    """Runs an action once, at a given pass of a step."""

    def __init__(self) -> None:
        self._step: ChangeStep | None = None
        self._left = 0
        self._action: Callable[[], None] = lambda: None

    def arm(self, step: ChangeStep, passes: int, action: Callable[[], None]) -> None:
        """Run ``action`` at the given pass of ``step``, counted from now. It replaces an action that is armed."""
        self._step, self._left, self._action = step, passes, action

    def pass_step(self, step: ChangeStep) -> None:
        """Report that a step is passed. The armed action may end the process of the master."""
        if step is not self._step:
            return
        self._left -= 1
        if self._left <= 0:
            self._step = None
            self._action()
