"""The replacements of the mutants in ``member_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from typing import Any

import msgspec

from stelae.host.superblock import DataState
from stelae.lifecycle.blocking_steps import OffLoop, WithLog
from stelae.spi.members import MemberType, RemoveServer, TabletConfig
from tests.sim.mutations import Original


def take_configs_at_commit(original: Original, self: Any) -> None:
    """The members of the committed config count until the next one is committed."""
    original(self)
    committed: TabletConfig = self.configs.committed
    self.voters = committed.voters()
    self.is_voter = self.node_id in self.voters
    self.majority = len(self.voters) // 2 + 1


def keep_replaced_configs(original: Original, self: Any, index: int) -> bool:
    return False


def allow_several_pending(original: Original, self: Any) -> None:
    return None


def change_while_configuring(original: Original, self: Any, event: Any) -> None:
    """Take a change before an entry of the own term is committed, and thus before a majority has answered."""
    state = self._state
    serving, state.serving = state.serving, True
    state.live_nodes = lambda leadership: {state.node_id, *leadership.peers}
    try:
        original(self, event)
    finally:
        state.serving = serving
        del state.live_nodes


def count_learners(original: Original, self: Any, own: int, values: list[int]) -> int:
    leadership = self._state.leadership
    learners = [peer.match for peer in leadership.learners] if leadership is not None else []
    ranked = sorted([own, *values, *learners], reverse=True)
    return ranked[self._state.majority - 1]


def count_votes_of_learners(original: Original, self: Any, voter: Any, reply: Any) -> None:
    state = self._state
    known = state.voters
    state.voters = tuple(m.node_id for m in state.config.members)
    try:
        original(self, voter, reply)
    finally:
        state.voters = known


def count_removed_peers(original: Original, self: Any, leadership: Any) -> None:
    known = dict(leadership.peers)
    original(self, leadership)
    leadership.peers = known | leadership.peers
    leadership.voting = [peer for peer in leadership.peers.values() if peer not in leadership.learners]


def count_own_vote_always(original: Original, self: Any) -> None:
    self._count_vote(self._state.node_id, granted=True)


def remove_two(original: Original, config: TabletConfig, change: Any) -> Any:
    """The removal of a voter also removes the last other one."""
    members = original(config, change)
    removed = config.member(change.node_id) if isinstance(change, RemoveServer) else None
    if not isinstance(members, tuple) or removed is None or removed.member_type is not MemberType.VOTER:
        return members
    *others, last = (m for m in members if m.member_type is MemberType.VOTER)
    return tuple(m for m in members if m != last) if others else members


def save_before_commit(original: Original, self: Any, ready: Any) -> None:
    """Metadata gets a config when it is appended."""
    import msgspec

    from stelae.spi.log import EntryKind
    from stelae.spi.members import decode_config

    entries = ready.append.entries if ready.append is not None else ()
    configs = [decode_config(entry) for entry in entries if entry.kind is EntryKind.CONFIG]
    original(self, msgspec.structs.replace(ready, committed_config=configs[-1]) if configs else ready)


def ignore_the_compare_and_set_id(original: Original, self: Any, expected: Any) -> None:
    return None


def remove_members_that_fall_silent(original: Original, self: Any, peer: Any) -> Any:
    """A learner is removed if it is silent for an election timeout, also if it has answered before."""
    return peer.heard_at_us + self._state.timeout_us if peer.answered else original(self, peer)


def promote_by_count(original: Original, self: Any, peer: Any) -> bool:
    """A member has caught up if it lacks few entries, however long they take."""
    return bool(peer.answered and self._state.log.last_index - peer.match <= 100)


def never_promote(original: Original, self: Any, peer: Any) -> bool:
    return False


def drop_messages_of_newer_members(original: Original, self: Any, sender: Any, message: Any, status: Any) -> None:
    from stelae.spi.errors import PeerError

    if status.config.member(sender) is None:
        raise PeerError(f"node {sender} is not a member")


# -- replicas of new members ----------------------------------------------------------------------


def give_voters_new_replicas(original: Original, block: Any, status: Any, log_base: Any, peer: Any) -> Any:
    """Take every member for one without a vote."""

    def without_votes(config: TabletConfig) -> TabletConfig:
        members = tuple(msgspec.structs.replace(m, member_type=MemberType.NON_VOTER) for m in config.members)
        return msgspec.structs.replace(config, members=members)

    shown = msgspec.structs.replace(
        status, config=without_votes(status.config), committed_config=without_votes(status.committed_config)
    )
    return original(block, shown, log_base, peer)


def create_what_exists(original: Original, self: Any, frames: Any) -> None:
    """Carry out the steps of a creation whatever the node has."""
    settings, loader = self._settings(self._decoder.decode(frames[0])), self._manager._loader
    if settings.id not in self._node.replicas:
        original(self, frames)
        return

    def steps() -> Any:
        block = yield OffLoop(lambda: loader.save_consensus_metadata(settings))
        yield WithLog(lambda wal: loader.create_log(wal, block))
        yield OffLoop(lambda: loader.save_superblock(block))

    self._manager._run(settings.id, "created", steps(), lambda _error: None)


def save_the_superblock_first(original: Original, self: Any, tablet: Any) -> Any:
    block = original(self, tablet)
    self.superblock_file(tablet.id).save(block)
    return block


# -- witnesses ------------------------------------------------------------------------------------


def serve_as_caretaker(original: Original, self: Any) -> None:
    caretaker, self.is_caretaker = self.is_caretaker, False
    try:
        original(self)
    finally:
        self.is_caretaker = caretaker


def never_hand_back(original: Original, self: Any, leadership: Any) -> None:
    return None


def begin_at_the_last_entry(original: Original, block: Any, status: Any, log_base: Any, peer: Any) -> Any:
    return original(msgspec.structs.replace(block, flushed=status.last), status, log_base, peer)


def give_witnesses_new_replicas(original: Original, block: Any, status: Any, log_base: Any, peer: Any) -> Any:
    """Take a witness for one that does not vote yet."""

    def not_yet(config: TabletConfig) -> TabletConfig:
        members = tuple(
            msgspec.structs.replace(m, member_type=MemberType.PRE_WITNESS) if m.member_type is MemberType.WITNESS else m
            for m in config.members
        )
        return msgspec.structs.replace(config, members=members)

    shown = msgspec.structs.replace(
        status, config=not_yet(status.config), committed_config=not_yet(status.committed_config)
    )
    return original(block, shown, log_base, peer)


def promote_without_rows(original: Original, self: Any, peer: Any, now: Any) -> Any:
    return MemberType.VOTER if now is MemberType.WITNESS else original(self, peer, now)


def allow_voters_without_rows(original: Original, self: Any, leadership: Any, change: Any) -> None:
    return None


def begin_with_a_ready_superblock(original: Original, self: Any) -> None:
    original(self)
    self._superblock.save(msgspec.structs.replace(self.block, data_state=DataState.READY))


class _NoRowsAtAll:
    """A cursor over no rows."""

    resume_token = None

    def next_batch(self, rows_max: int) -> None:
        return None

    def __enter__(self) -> _NoRowsAtAll:
        return self

    def __exit__(self, *_raised: object) -> None:
        return None


def scan_no_rows(original: Original, self: Any, spec: Any, at: Any = None) -> _NoRowsAtAll:
    return _NoRowsAtAll()
