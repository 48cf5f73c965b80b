"""The states of one copy on its target, and what follows from the outcome of each. Pure.

Source: "Follower Tablet Copy" of the tablet-copy design, steps 1 to 6; ``durability.md`` rules 17 to 22. Each state has
one piece of work, which ``tablet_copy`` does. Its outcome leads to the next state, by a total table: a pair that the
table does not name cannot happen, and ends in the safe way (``ABANDONING``, or ``ENDED`` before the first effect).

The order follows from the rules:

- Until ``SETTING_ASIDE`` or ``MARKING``, nothing on this node has changed but the stage. Guards and fences come before
  (rule 17).
- A damaged replica is set aside only after ``VERIFYING``: its rows may be the last good ones of a part of the tablet,
  and the source may turn out to be damaged, too.
- ``MARKING`` is step 1 of the source: the superblock says COPYING, and keeps the last op id of the tombstone.
- Fetching follows (steps 3 and 4). All that arrives is in the stage, and survives an interruption (rule 21).
- Metadata is merged (step 2) when everything is verified and installed. So a copy that ends early changes no config.
- ``COMMITTING`` is step 5: the superblock that says READY is the commit point (rule 22). Nothing cancels a copy from
  here on, and there is no way back to a tombstone.
- A copy that cannot go on is *abandoned*: the replica is the tombstone again that it was. The leader asks again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class CopyState(StrEnum):
    """What a copy does at the moment."""

    CHECKING = "CHECKING"  #: Guards under the lock of the tablet.
    OPENING = "OPENING"  #: Asks a source for its snapshot.
    FENCING = "FENCING"  #: Checks the snapshot, the fences, and the guards again.
    SETTING_ASIDE = "SETTING_ASIDE"  #: Deletes the replica that lags or is damaged, with quarantine.
    REHOSTING = "REHOSTING"  #: Starts the replica again that could not be set aside.
    MARKING = "MARKING"  #: Writes the superblock COPYING.
    STAGING = "STAGING"  #: Writes the manifest of the stage, and removes what does not belong to the snapshot.
    FETCHING = "FETCHING"
    VERIFYING = "VERIFYING"  #: Reads and checks everything in the stage, and checks the fences.
    INSTALLING_LOG = "INSTALLING_LOG"
    INSTALLING_ROWS = "INSTALLING_ROWS"
    MERGING = "MERGING"  #: Merges the consensus metadata.
    COMMITTING = "COMMITTING"  #: Writes the superblock READY.
    HOSTING = "HOSTING"
    ABANDONING = "ABANDONING"
    ENDED = "ENDED"


class CopyStepOutcome(StrEnum):
    """How the work of a state ended."""

    DONE = "DONE"
    REFUSED = "REFUSED"  #: By a guard or a fence of this node, or by a source, which may not answer at all.
    INTERRUPTED = "INTERRUPTED"  #: The source that serves the copy was lost, or ended the session.
    DAMAGED = "DAMAGED"  #: Bytes at the source, or in the stage, do not have their digest.
    FULL = "FULL"  #: This node has no space.
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class CopyPhase(StrEnum):
    """What a copy does, for people. The values are stable."""

    PREPARING = "PREPARING"  #: It looks for a source, and perhaps sets the old replica aside.
    FETCHING = "FETCHING"
    VERIFYING = "VERIFYING"  #: Everything has arrived, and is read and checked.
    INSTALLING = "INSTALLING"
    ENDING = "ENDING"  #: It has ended, or is abandoned.


PHASES: Mapping[CopyState, CopyPhase] = {
    CopyState.CHECKING: CopyPhase.PREPARING,
    CopyState.OPENING: CopyPhase.PREPARING,
    CopyState.FENCING: CopyPhase.PREPARING,
    CopyState.SETTING_ASIDE: CopyPhase.PREPARING,
    CopyState.REHOSTING: CopyPhase.ENDING,
    CopyState.MARKING: CopyPhase.PREPARING,
    CopyState.STAGING: CopyPhase.PREPARING,
    CopyState.FETCHING: CopyPhase.FETCHING,
    CopyState.VERIFYING: CopyPhase.VERIFYING,
    CopyState.INSTALLING_LOG: CopyPhase.INSTALLING,
    CopyState.INSTALLING_ROWS: CopyPhase.INSTALLING,
    CopyState.MERGING: CopyPhase.INSTALLING,
    CopyState.COMMITTING: CopyPhase.INSTALLING,
    CopyState.HOSTING: CopyPhase.INSTALLING,
    CopyState.ABANDONING: CopyPhase.ENDING,
    CopyState.ENDED: CopyPhase.ENDING,
}
"""The phase of each state. A damaged replica is set aside, and marked, only to install its copy."""


@dataclass(frozen=True, slots=True)
class _Row:
    """What follows from an outcome: ``to``. With ``otherwise``, that is followed once no round is left."""

    to: CopyState
    otherwise: CopyState | None = None
    drops_stage: bool = False


_S, _O = CopyState, CopyStepOutcome
_END = _Row(_S.ENDED)
_ABANDON = _Row(_S.ABANDONING)
_ABANDON_ALL = _Row(_S.ABANDONING, drops_stage=True)
_REOPEN = _Row(_S.OPENING, _S.ABANDONING)
_REFETCH = _Row(_S.FETCHING, _S.ABANDONING, drops_stage=True)

BEFORE_EFFECTS: Mapping[tuple[CopyState, CopyStepOutcome], _Row] = {
    (_S.CHECKING, _O.DONE): _Row(_S.OPENING),
    (_S.OPENING, _O.DONE): _Row(_S.FENCING),
    (_S.OPENING, _O.REFUSED): _Row(_S.OPENING, _S.ENDED),
    (_S.FENCING, _O.DONE): _Row(_S.SETTING_ASIDE),
    (_S.FENCING, _O.REFUSED): _Row(_S.OPENING, _S.ENDED),
    (_S.SETTING_ASIDE, _O.DONE): _Row(_S.MARKING),
    (_S.SETTING_ASIDE, _O.FULL): _Row(_S.REHOSTING),
    (_S.SETTING_ASIDE, _O.FAILED): _Row(_S.REHOSTING),
    (_S.SETTING_ASIDE, _O.DAMAGED): _Row(_S.REHOSTING),
    (_S.MARKING, _O.DONE): _Row(_S.STAGING),
    # After a failed sync the superblock may say COPYING.
    (_S.MARKING, _O.FAILED): _ABANDON,
}
"""Until the superblock says COPYING. Every other pair ends the copy."""

FETCHES_FIRST: Mapping[tuple[CopyState, CopyStepOutcome], _Row] = {
    **BEFORE_EFFECTS,
    (_S.FENCING, _O.DONE): _Row(_S.STAGING),
    (_S.STAGING, _O.DONE): _Row(_S.FETCHING),
    (_S.FETCHING, _O.DONE): _Row(_S.VERIFYING),
    (_S.FETCHING, _O.REFUSED): _Row(_S.OPENING, _S.ENDED),
    (_S.FETCHING, _O.INTERRUPTED): _Row(_S.OPENING, _S.ENDED),
    (_S.FETCHING, _O.DAMAGED): _Row(_S.OPENING, _S.ENDED),
    (_S.VERIFYING, _O.DONE): _Row(_S.SETTING_ASIDE),
    (_S.VERIFYING, _O.DAMAGED): _Row(_S.FETCHING, _S.ENDED),
    (_S.MARKING, _O.DONE): _Row(_S.INSTALLING_LOG),
}
"""Instead of ``BEFORE_EFFECTS`` for a damaged replica. The stage stays for the next copy if this one ends early."""

AFTER_MARKING: Mapping[tuple[CopyState, CopyStepOutcome], _Row] = {
    (_S.OPENING, _O.DONE): _Row(_S.FENCING),
    (_S.OPENING, _O.REFUSED): _REOPEN,
    (_S.FENCING, _O.DONE): _Row(_S.STAGING),
    (_S.FENCING, _O.REFUSED): _REOPEN,
    (_S.STAGING, _O.DONE): _Row(_S.FETCHING),
    (_S.STAGING, _O.FULL): _ABANDON_ALL,
    (_S.FETCHING, _O.DONE): _Row(_S.VERIFYING),
    (_S.FETCHING, _O.REFUSED): _REOPEN,
    (_S.FETCHING, _O.INTERRUPTED): _REOPEN,
    (_S.FETCHING, _O.DAMAGED): _REOPEN,
    (_S.FETCHING, _O.FULL): _ABANDON_ALL,
    (_S.VERIFYING, _O.DONE): _Row(_S.INSTALLING_LOG),
    (_S.VERIFYING, _O.DAMAGED): _REFETCH,
    (_S.INSTALLING_LOG, _O.DONE): _Row(_S.INSTALLING_ROWS),
    (_S.INSTALLING_LOG, _O.DAMAGED): _ABANDON_ALL,
    (_S.INSTALLING_LOG, _O.FULL): _ABANDON_ALL,
    (_S.INSTALLING_ROWS, _O.DONE): _Row(_S.MERGING),
    (_S.INSTALLING_ROWS, _O.DAMAGED): _ABANDON_ALL,
    (_S.INSTALLING_ROWS, _O.FULL): _ABANDON_ALL,
    (_S.MERGING, _O.DONE): _Row(_S.COMMITTING),
    (_S.COMMITTING, _O.DONE): _Row(_S.HOSTING),
    (_S.COMMITTING, _O.FULL): _ABANDON,
}
"""Once the superblock says COPYING. Every other pair abandons the copy, and keeps the stage; except in ``LAST``."""

LAST = frozenset({CopyState.COMMITTING, CopyState.HOSTING, CopyState.ABANDONING})
"""From these states every pair that the tables do not name ends the copy. After a failed sync in ``COMMITTING``, the
superblock says COPYING or READY: the tablet is offline until the next start. If abandoning fails, it still says
COPYING: the next request, or the next start, repeats the way back."""

CANCELLABLE = frozenset(CopyState) - LAST - {CopyState.REHOSTING, CopyState.ENDED}
"""The states in which a cancellation has an effect."""


@dataclass(slots=True)
class CopySequence:
    """The state of one copy, and what decides about its next state.

    Args:
        replaces: the node has a replica, which must be set aside.
        fetches_first: it is damaged, and is set aside once everything is fetched and verified.
        rounds: how often the copy may ask a source again, or fetch again what was damaged."""

    replaces: bool
    rounds: int
    fetches_first: bool = False
    state: CopyState = CopyState.CHECKING
    marked: bool = False  #: The superblock may say COPYING.
    committed: bool = False  #: The superblock says READY.
    drops_stage: bool = False  #: When the copy is abandoned, what has arrived is removed, too.

    @property
    def phase(self) -> CopyPhase:
        """What the copy does, for people."""
        if self.fetches_first and self.state in (CopyState.SETTING_ASIDE, CopyState.MARKING):
            return CopyPhase.INSTALLING
        return PHASES[self.state]

    def step(self, outcome: CopyStepOutcome) -> CopyState:
        """Go to the state that follows from the outcome of the present one, and return it."""
        assert self.state is not CopyState.ENDED, "the copy has ended"
        before = FETCHES_FIRST if self.fetches_first else BEFORE_EFFECTS
        table = AFTER_MARKING if self.marked else before
        default = _ABANDON if self.marked and self.state not in LAST else _END
        row = table.get((self.state, outcome), default)
        self._note(outcome)
        following = row.to
        if row.otherwise is not None:
            if self.rounds < 1:
                following = row.otherwise
            self.rounds -= 1
        if following is CopyState.SETTING_ASIDE and not self.replaces:
            following = CopyState.MARKING
        if following is CopyState.ABANDONING:
            self.drops_stage = self.drops_stage or row.drops_stage
        self.state = following
        return following

    def _note(self, outcome: CopyStepOutcome) -> None:
        if self.state is CopyState.MARKING and outcome in (CopyStepOutcome.DONE, CopyStepOutcome.FAILED):
            self.marked = True
        if self.state is CopyState.COMMITTING and outcome is CopyStepOutcome.DONE:
            self.committed = True
