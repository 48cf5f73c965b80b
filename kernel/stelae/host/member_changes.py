"""The changes of config and the recovery of a replica that are in progress, and the callers that wait for them."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from stelae.host.rejection_errors import Asked
from stelae.spi.consensus_events import AbortChange, ChangeMembers, RecoverAlone, StandDown
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import MemberChange, TabletConfig, change_text

MembersChanged: TypeAlias = Callable[[TabletConfig | StelaeError], None]
AbortDone: TypeAlias = Callable[[StelaeError | None], None]


class PendingMemberChanges:
    """The requests of one replica to change its config, or to abort that, on the event loop."""

    def __init__(self, tokens: Iterator[int]) -> None:
        self._tokens = tokens
        self._changes: dict[int, MembersChanged] = {}
        self._aborts: dict[int, AbortDone] = {}
        self._asked: dict[int, Asked] = {}

    def request(self, change: MemberChange, committed_config_id: OpId | None, done: MembersChanged) -> ChangeMembers:
        """Return the event that asks for a change.

        ``done`` is called once: with the config once it is committed, or with an error."""
        token = self._begin(Asked(change_text(change), is_change=True))
        self._changes[token] = done
        return ChangeMembers(token, change, committed_config_id)

    def request_abort(self, done: AbortDone) -> AbortChange:
        """Return the event that aborts a change. ``done`` is called once."""
        token = self._begin(Asked("abort the change of its members"))
        self._aborts[token] = done
        return AbortChange(token)

    def request_recovery(self, term: int, last: OpId, config_id: OpId, done: MembersChanged) -> RecoverAlone:
        """Return the event that makes the replica the only voter.

        ``done`` is called once: with the config once it is committed, or with an error."""
        token = self._begin(Asked(f"recover from this replica alone, in term {term}"))
        self._changes[token] = done
        return RecoverAlone(token, term, last, config_id)

    def request_stand_down(self, term: int, survivor: NodeId, done: AbortDone) -> StandDown:
        """Return the event that leaves the tablet to a survivor. ``done`` is called once."""
        token = self._begin(Asked(f"stand down for node {survivor}, in term {term}"))
        self._aborts[token] = done
        return StandDown(token, term, survivor)

    def asked(self, token: int) -> Asked | None:
        """Return what a request in progress asks for, or ``None`` if there is no such request."""
        return self._asked.get(token)

    def committed(self, token: int, config: TabletConfig) -> None:
        """Finish a change that is committed."""
        self._asked.pop(token, None)
        if (done := self._changes.pop(token, None)) is not None:
            done(config)

    def aborted(self, token: int) -> None:
        """Finish an abort, or standing down, that has succeeded."""
        self._asked.pop(token, None)
        if (done := self._aborts.pop(token, None)) is not None:
            done(None)

    def failed(self, token: int, error: StelaeError) -> bool:
        """Finish a request with an error. Return whether there was such a request."""
        self._asked.pop(token, None)
        done = self._changes.pop(token, None) or self._aborts.pop(token, None)
        if done is not None:
            done(error)
        return done is not None

    def fail_all(self, error: StelaeError) -> None:
        """Finish all requests with an error. Whether they would have succeeded is not known."""
        for token in [*self._changes, *self._aborts]:
            self.failed(token, error)

    def _begin(self, asked: Asked) -> int:
        token = next(self._tokens)
        self._asked[token] = asked
        return token
