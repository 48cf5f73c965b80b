"""The table of all role changes: one cell for each cause and role. The diagram in the docs is generated from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from stelae.spi.consensus import Role


class Cause(StrEnum):
    """The causes that can change the role of a replica."""

    TIMEOUT = "TIMEOUT"
    """The election deadline passed, or the driver asked for a campaign."""
    TRANSFER = "TRANSFER"
    """The leader asked this follower to take over."""
    VOTES_WON = "VOTES_WON"
    """A majority granted its vote."""
    CAMPAIGN_LOST = "CAMPAIGN_LOST"
    """A majority is out of reach, because too many voters refused."""
    HIGHER_TERM = "HIGHER_TERM"
    """A message of a later term arrived."""
    LEADER_HEARD = "LEADER_HEARD"
    """An append or a heartbeat of the current term's leader arrived."""
    QUORUM_LOST = "QUORUM_LOST"
    """The leader has not heard from a majority for one and a half election timeouts."""
    STEP_DOWN = "STEP_DOWN"
    """The driver asked the leader to step down."""
    PERSIST_FAILED = "PERSIST_FAILED"
    """A write of a Ready failed."""
    MADE_VOTER = "MADE_VOTER"
    """A config in which this replica votes took effect."""
    MADE_LEARNER = "MADE_LEARNER"
    """A config in which this replica is a learner took effect."""
    REMOVED = "REMOVED"
    """A config without this replica took effect."""


IGNORED: Final = None
"""The cell of a cause that does not change a role."""

_L, _F, _N = Role.LEADER, Role.FOLLOWER, Role.LEARNER
_C, _O = Role.CANDIDATE, Role.NON_PARTICIPANT


def _row(*targets: Role | None) -> dict[Role, Role | None]:
    return dict(zip((_F, _C, _L, _N, _O), targets, strict=True))


TRANSITIONS: Final[Mapping[Cause, Mapping[Role, Role | None]]] = MappingProxyType(
    {
        #                        FOLLOWER CANDIDATE LEADER   LEARNER  NON_PARTICIPANT
        Cause.TIMEOUT: _row(_C, _C, IGNORED, IGNORED, IGNORED),
        Cause.TRANSFER: _row(_C, IGNORED, IGNORED, IGNORED, IGNORED),
        Cause.VOTES_WON: _row(IGNORED, _L, IGNORED, IGNORED, IGNORED),
        Cause.CAMPAIGN_LOST: _row(IGNORED, _F, IGNORED, IGNORED, IGNORED),
        Cause.HIGHER_TERM: _row(_F, _F, _F, _N, _O),
        Cause.LEADER_HEARD: _row(_F, _F, IGNORED, _N, _O),
        Cause.QUORUM_LOST: _row(IGNORED, IGNORED, _F, IGNORED, IGNORED),
        Cause.STEP_DOWN: _row(IGNORED, IGNORED, _F, IGNORED, IGNORED),
        Cause.PERSIST_FAILED: _row(_F, _F, _F, _N, _O),
        Cause.MADE_VOTER: _row(_F, _C, IGNORED, _F, _F),
        Cause.MADE_LEARNER: _row(_N, _N, _N, _N, _N),
        Cause.REMOVED: _row(_O, _O, _O, _O, _O),
    }
)
"""``TRANSITIONS[cause][role]`` is the role afterwards, or ``IGNORED``."""
