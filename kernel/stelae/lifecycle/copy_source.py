"""The source that one copy uses now, with its open session. What follows from the end of a fetch, for the next source.

Copies of tablets and copies of rows share it: which source comes next is decided by ``SourceChoice`` alone."""

from __future__ import annotations

from collections.abc import Callable

from stelae.host.start_copy import StartCopy
from stelae.lifecycle.blocking_steps import Ask, Steps
from stelae.lifecycle.copy_environment import CopyControlFlags, CopyEnvironment
from stelae.lifecycle.copy_states import CopyStepOutcome
from stelae.lifecycle.source_choice import SourceChoice
from stelae.spi.copy_plan import Complete, CopyOffer, CopyOutcome, Interruption, Partial, Refused, SourceDamaged
from stelae.spi.members import Member

ALL_DAMAGED = "the bytes of every source are damaged; run stelae check, and restore the tablet from a backup"


class ChosenSource:
    """The present source of one copy.

    Args:
        asked: the request, with the sources in the order in which they are asked.
        control: says whether a source that does not answer is asked again."""

    def __init__(self, environment: CopyEnvironment, asked: StartCopy, control: CopyControlFlags) -> None:
        self._env = environment
        self._ask_again = control.asks_again
        self._tablet_id = asked.tablet_id
        self._choice = SourceChoice(asked.sources)
        self.offer: CopyOffer | None = None  #: The open session. The caller of the copy ends the last one.

    def next(self, *, at_once: bool = False) -> Steps[Member | None]:
        """Return the source to ask, after a pause if one was asked before, unless the caller goes on ``at_once``.
        ``None``: all are damaged (``ALL_DAMAGED``).

        The session is ended, unless the same source is asked again."""
        if not self._choice.stays:
            self.end()
        if self._choice.asked and not at_once:
            yield Ask(self._after_pause)
        return self._choice.next()

    def begin(self, source: Member, *, as_export: bool = False) -> Steps[CopyOffer]:
        """Open a session, or join the one that is open. Raises ``StelaeError`` if the source serves none."""
        begin, tablet, again = self._env.sources.begin, self._tablet_id, self._ask_again
        offer: CopyOffer = yield Ask(lambda done: begin(source, tablet, done, as_export=as_export, ask_again=again))
        self.offer = offer
        return offer

    def end(self) -> None:
        """End the session, if one is open."""
        if self.offer is not None:
            self._env.sources.end(self.offer)
            self.offer = None

    def stay(self) -> None:
        """Ask the same source next: it was lost, or what it sent was damaged here."""
        self._choice.interrupted()

    def fetched(self, result: CopyOutcome) -> tuple[CopyStepOutcome, str]:
        """Note how a fetch ended. Return what follows for the copy, and a sentence for people."""
        match result:
            case Complete():
                return CopyStepOutcome.DONE, ""
            case Partial():
                self._choice.interrupted()
                outcome, next_step = _INTERRUPTIONS[result.why]
                return outcome, f"{result.why}: {result.reason}{next_step}"
            case SourceDamaged():
                self._choice.damaged(result.source)
                if self.offer is not None:
                    self._env.source_damaged(self.offer, result.item)
                fact = f"item {result.item!r} at {result.source} is damaged: {result.detail}"
                return (
                    CopyStepOutcome.DAMAGED,
                    f"{fact}; another source is asked, and the disk of that node needs a check",
                )
            case Refused():
                return CopyStepOutcome.REFUSED, f"{result.code}: {result.reason}; another source is asked"

    def _after_pause(self, done: Callable[[object], None]) -> None:
        turns = self._env.node.turns
        turns.call_at(turns.now_us() + self._env.settings.pause_ms * 1000, lambda: done(None))


_AGAIN = "; the copy goes on with what has arrived when a source answers"
_INTERRUPTIONS = {
    Interruption.CANCELLED: (CopyStepOutcome.CANCELLED, ""),
    Interruption.SOURCE_LOST: (CopyStepOutcome.INTERRUPTED, _AGAIN),
    Interruption.SESSION_ENDED: (CopyStepOutcome.INTERRUPTED, _AGAIN),
    Interruption.NO_SPACE: (CopyStepOutcome.FULL, "; free space on this node"),
    Interruption.STAGE_FAILED: (CopyStepOutcome.FAILED, "; check the disk of this node"),
}
