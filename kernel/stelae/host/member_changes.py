"""The changes of config and the recovery of a replica that are in progress, and the callers that wait for them."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from stelae.spi.consensus_events import AbortChange, ChangeMembers, RecoverAlone, StandDown
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import MemberChange, TabletConfig

MembersChanged: TypeAlias = Callable[[TabletConfig | StelaeError], None]
AbortDone: TypeAlias = Callable[[StelaeError | None], None]


class PendingMemberChanges:
    """The requests of one replica to change its config, or to abort that, on the event loop."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self._tokens = tokens
        self._changes: dict[int, MembersChanged] = {}
        self._aborts: dict[int, AbortDone] = {}

    def request(self, change: MemberChange, committed_config_id: OpId | None, done: MembersChanged) -> ChangeMembers:
        """Return the event that asks for a change.

        ``done`` is called once: with the config once it is committed, or with an error."""
        token = next(self._tokens)
        self._changes[token] = done
        return ChangeMembers(token, change, committed_config_id)

    def request_abort(self, done: AbortDone) -> AbortChange:
        """Return the event that aborts a change. ``done`` is called once."""
        token = next(self._tokens)
        self._aborts[token] = done
        return AbortChange(token)

    def request_recovery(self, term: int, last: OpId, config_id: OpId, done: MembersChanged) -> RecoverAlone:
        """Return the event that makes the replica the only voter.

        ``done`` is called once: with the config once it is committed, or with an error."""
        token = next(self._tokens)
        self._changes[token] = done
        return RecoverAlone(token, term, last, config_id)

    def request_stand_down(self, term: int, survivor: NodeId, done: AbortDone) -> StandDown:
        """Return the event that leaves the tablet to a survivor. ``done`` is called once."""
        token = next(self._tokens)
        self._aborts[token] = done
        return StandDown(token, term, survivor)

    def committed(self, token: int, config: TabletConfig) -> None:
        """Finish a change that is committed."""
        if (done := self._changes.pop(token, None)) is not None:
            done(config)

    def aborted(self, token: int) -> None:
        """Finish an abort, or standing down, that has succeeded."""
        if (done := self._aborts.pop(token, None)) is not None:
            done(None)

    def failed(self, token: int, error: StelaeError) -> bool:
        """Finish a request with an error. Return whether there was such a request."""
        done = self._changes.pop(token, None) or self._aborts.pop(token, None)
        if done is not None:
            done(error)
        return done is not None

    def fail_all(self, error: StelaeError) -> None:
        """Finish all requests with an error. Whether they would have succeeded is not known."""
        for token in [*self._changes, *self._aborts]:
            self.failed(token, error)
