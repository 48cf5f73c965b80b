"""The copies of tablets to one node: begins them when leaders ask, at most one for each tablet, within the copy slots.

A leader repeats its request until the replica answers, so a request that is refused or whose copy was abandoned comes
again (T5, T9). A request for which there is no slot waits here (``waiting_copies``), and begins as soon as there is
one. To the guards it is a message that was late on its way.

Copies run in a pool of their own: they take long, and votes must not wait for them. A deletion cancels the copy of its
tablet (``TabletManager``). So does a leader that has added this node again, as a witness: the copy was for its earlier
membership, and would keep the witness from its log for as long as it takes. A copy whose source does not answer waits
for it no longer once a leader of a later term asks, because its tablet may have no majority without this replica."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from stelae.host.ports import Timer
from stelae.host.start_copy import CancelCopy, StartCopy
from stelae.lifecycle.blocking_steps import OffLoop, Steps
from stelae.lifecycle.copied_replicas import CopiedReplicas
from stelae.lifecycle.copy_environment import CopyEnvironment
from stelae.lifecycle.copy_guards import AT_ONCE, CopyRefusal, CopyRefusalCode, refusal
from stelae.lifecycle.copy_holds import CopyHolds
from stelae.lifecycle.copy_stage import remove_stage
from stelae.lifecycle.copy_target_facts import at_once
from stelae.lifecycle.kept_sessions import KeptSessions
from stelae.lifecycle.rows_copy import RowsCopy
from stelae.lifecycle.tablet_copy import TabletCopy
from stelae.lifecycle.waiting_copies import WaitingCopies, WaitingCopy
from stelae.spi.errors import Overloaded, StelaeError
from stelae.spi.ids import TabletId
from stelae.spi.recovery_epoch import is_too_far_ahead

log = logging.getLogger(__name__)

COPIED = "copied"

REASONS_MAX = 1024
"""The most tablets whose last refusal is kept."""

WHY_CHARACTERS_MAX = 300
"""The most characters of a peer's reason that are kept."""

BUSY_SOURCE_US = 250_000
"""After this time the sources of a copy are asked again that had no slot, in microseconds."""


class TabletCopies:
    """The copies to one node, on its event loop."""

    def __init__(self, environment: CopyEnvironment) -> None:
        self._sessions = KeptSessions(environment.sources, environment.node.turns)
        self._copied = CopiedReplicas(environment.node, self._sessions)
        self._env = replace(environment, sources=self._sessions, admitted=self._copied.release)
        self._running: dict[TabletId, TabletCopy | RowsCopy] = {}
        self._refusals: dict[TabletId, str] = {}
        self.lost: dict[TabletId, bool] = {}
        """Tablets of which this node is a voter and has nothing, as the leaders' requests show. The value says whether
        the replica was surely lost: a member of the first config may not have begun yet."""
        self.holds = CopyHolds()
        """What operators have paused or cancelled (``copy_orders``). After a change, ``apply_holds`` must follow."""
        self._holds_timer: Timer | None = None
        self._waiting = WaitingCopies()
        self._waiting_timer: Timer | None = None
        self._at_end: dict[TabletId, list[Callable[[bool], None]]] = {}
        environment.manager.cancel_copy = self.cancel

    @property
    def running(self) -> Mapping[TabletId, TabletCopy | RowsCopy]:
        """The copies that are in progress."""
        return self._running

    @property
    def waiting(self) -> Mapping[TabletId, WaitingCopy]:
        """The copies of new replicas that wait for a slot, or for the end of a pause."""
        return self._waiting.new_replicas(self._env.node.turns.now_us())

    def last_refusal(self, tablet_id: TabletId) -> str:
        """Return why the last copy of a tablet did not begin; empty if it began, or if that is not known any more."""
        return self._refusals.get(tablet_id, "")

    def start(self, asked: StartCopy) -> None:
        """Begin a copy as a leader asks, unless a guard refuses it. Does not begin while one is in progress.

        The guards that need no file are applied at once, so requests beyond the slots cost little (T5)."""
        self._begin(asked, self._env.node.turns.now_us())

    def _begin(self, asked: StartCopy, asked_us: int) -> CopyRefusal | None:
        """Begin a copy for which a leader asked at ``asked_us``. Return why it is refused, if it is."""
        tablet, env = asked.tablet_id, self._env
        copying, now_us = tablet in self._running, env.node.turns.now_us()
        if copying and _needs_no_copy(asked, self._running[tablet]):
            self.cancel(tablet, "this node was removed, and added again as a PRE_WITNESS, which begins without a copy")
        if copying and _is_of_later_term(asked, self._running[tablet]):
            self._running[tablet].control.newer_leader_asks = True
        cancelled, paused = self.holds.is_barred(tablet, now_us), self.holds.is_paused(tablet, now_us)
        slot = not copying and not cancelled and not paused and self._reserve(tablet)
        here = at_once(env, asked, copying=copying, slot=slot, cancelled=cancelled, paused=paused and not copying)
        refused = refusal(asked, here, AT_ONCE)
        if refused is not None:
            if slot:
                env.transport.release(tablet)
            if not copying:
                self._note_waiting(asked, asked_us, refused)
                self._refused(asked, str(refused))
            return refused
        self._waiting.forget(tablet)
        kind = RowsCopy if asked.rows_only else TabletCopy
        copy = self._running[tablet] = kind(env, asked)

        def ended(error: StelaeError | None) -> None:
            del self._running[tablet]
            env.transport.release(tablet)
            self._ended(asked, copy, error)
            if isinstance(copy, TabletCopy) and copy.sources_busy and copy.control.asks_again():
                due_us = env.node.turns.now_us() + BUSY_SOURCE_US
                self._waiting.note(WaitingCopy(asked, asked_us, due_us=due_us))
            self._begin_waiting()

        env.manager.run(tablet, COPIED, copy.steps(), ended, pool=env.node.copies)
        return None

    def _begin_waiting(self) -> None:
        """Begin copies that wait, as long as there are slots."""
        now_us = self._env.node.turns.now_us()
        for one in self._waiting.due(now_us):
            tablet = one.asked.tablet_id
            if self._waiting.get(tablet) is not one or self.holds.is_paused(tablet, now_us):
                continue
            refused = self._begin(one.asked, one.asked_us)
            if refused is not None and refused.code is CopyRefusalCode.THROTTLED:
                break
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
        due_us = self._waiting.next_due_us(now_us)
        self._waiting_timer = None if due_us is None else self._env.node.turns.call_at(due_us, self._begin_waiting)

    def forget(self, tablet_id: TabletId) -> None:
        """Note that a tablet was deleted for good: nothing of it is missing, and no copy of it waits."""
        self.lost.pop(tablet_id, None)
        self._waiting.forget(tablet_id)

    def cancel(self, tablet_id: TabletId, why: str) -> bool:
        """Cancel the copy of a tablet. Return False if none is in progress.

        It ends soon: as a tombstone, or, if the superblock says READY by now, as a replica."""
        copy = self._running.get(tablet_id)
        if copy is not None:
            copy.control.why_cancelled = copy.control.why_cancelled or why
        return copy is not None

    def at_end(self, tablet_id: TabletId, call: Callable[[bool], None]) -> None:
        """Call back once the copy of a tablet that is in progress has ended, and what it left is removed if its tablet
        is barred. The argument says whether the replica has what was copied."""
        self._at_end.setdefault(tablet_id, []).append(call)

    def apply_holds(self) -> None:
        """Let every copy know whether it is paused, now and when the next pause ends."""
        turns = self._env.node.turns
        now_us = turns.now_us()
        for tablet_id, copy in self._running.items():
            copy.control.paused = self.holds.is_paused(tablet_id, now_us)
        if self._holds_timer is not None:
            self._holds_timer.cancel()
        end_us = self.holds.next_end_us(now_us)
        self._holds_timer = None if end_us is None else turns.call_at(end_us, self.apply_holds)
        self._begin_waiting()

    def drop_waiting(self, tablet_id: TabletId, done: Callable[[bool], None]) -> None:
        """Remove what an earlier copy of a tablet has left, whose next copy waits. ``done`` as for ``at_end``."""
        self._waiting.forget(tablet_id)
        self.at_end(tablet_id, done)
        self._drop_stage(tablet_id)

    def cancelled_by_leader(self, cancelled: CancelCopy) -> None:
        """Cancel a copy because a leader says that it is not needed. A message that is out of date has no effect."""
        tablet, why = cancelled.tablet_id, cancelled.why[:WHY_CHARACTERS_MAX]
        if (copy := self._running.get(tablet)) is None:
            return
        replica = self._env.node.replicas.get(tablet)
        if isinstance(copy, RowsCopy) and replica is not None and cancelled.term >= replica.status.term:
            self.cancel(tablet, why)

    def stop(self) -> None:
        """Cancel all copies, because the node stops. What has arrived stays in the stages."""
        self._waiting.clear()
        if self._waiting_timer is not None:
            self._waiting_timer.cancel()
        for tablet_id in self._running:
            self.cancel(tablet_id, "the node stops")
        self._copied.stop()
        if self._holds_timer is not None:
            self._holds_timer.cancel()
        self._sessions.stop()

    def _reserve(self, tablet_id: TabletId) -> bool:
        try:
            self._env.transport.reserve(tablet_id)
        except Overloaded:
            return False
        return True

    def _ended(self, asked: StartCopy, copy: TabletCopy | RowsCopy, error: StelaeError | None) -> None:
        tablet, metrics = asked.tablet_id, self._env.node.metrics
        if copy.committed and copy.source.offer is not None and not asked.rows_only:
            self._copied.add(tablet, copy.source.offer)
        else:
            copy.source.end()
        if isinstance(copy, TabletCopy) and copy.missing:
            self.lost[tablet] = asked.config.index > 1
        if error is not None or copy.begun:
            self._refusals.pop(tablet, None)
            self.lost.pop(tablet, None)
            metrics.count("copies_completed" if copy.committed else "copies_abandoned")
            state = "complete" if copy.committed else "abandoned"
            why = "" if copy.committed else f"reason={error or copy.reason}"
            what = (state, tablet, asked.leader, copy.control.latest.bytes_done, why)
            log.info("copy %s tablet=%s leader=%s bytes=%d %s", *what)
        else:
            self._refused(asked, copy.reason)
        if copy.committed:
            self.holds.resume(tablet)
            self._tell_end(tablet, committed=True)
        elif self.holds.is_barred(tablet, self._env.node.turns.now_us()):
            self._drop_stage(tablet)
        else:
            self._tell_end(tablet, committed=False)

    def _drop_stage(self, tablet: TabletId) -> None:
        """Remove what a cancelled copy has fetched. If that fails, the limits of stages remove it later."""
        node = self._env.node

        def steps() -> Steps[None]:
            yield OffLoop(lambda: remove_stage(node.files, node.layout, tablet))

        def done(error: StelaeError | None) -> None:
            if error is not None:
                log.warning("stage of a cancelled copy not removed tablet=%s reason=%s", tablet, error)
            self._tell_end(tablet, committed=False)

        self._env.manager.run(tablet, "cleaned", steps(), done, pool=node.scans)

    def _tell_end(self, tablet: TabletId, *, committed: bool) -> None:
        for call in self._at_end.pop(tablet, ()):
            call(committed)

    def _note_waiting(self, asked: StartCopy, asked_us: int, refused: CopyRefusal) -> None:
        """Note that a copy waits for its turn. One that another operation delays for a moment waits on."""
        if refused.code in (CopyRefusalCode.THROTTLED, CopyRefusalCode.PAUSED):
            paused = refused.code is CopyRefusalCode.PAUSED
            self._waiting.note(WaitingCopy(asked, asked_us, paused=paused))
        elif refused.code is not CopyRefusalCode.BUSY:
            self._waiting.forget(asked.tablet_id)

    def _refused(self, asked: StartCopy, reason: str) -> None:
        """Log why no copy began. The leader asks again and again, so each reason is logged once."""
        tablet = asked.tablet_id
        self._env.node.metrics.count("copies_refused")
        if self._refusals.get(tablet) != reason:
            # A member that was just copied, or came back in time, is asked once more. This needs no attention.
            level = logging.INFO if reason.startswith(CopyRefusalCode.NOT_NEEDED) else logging.WARNING
            log.log(level, "copy not begun tablet=%s leader=%s reason=%s", tablet, asked.leader, reason)
        if len(self._refusals) >= REASONS_MAX:
            self._refusals.clear()
        self._refusals[tablet] = reason


def _is_of_later_term(asked: StartCopy, running: TabletCopy | RowsCopy) -> bool:
    term = running.asked.term
    return asked.term > term and not is_too_far_ahead(asked.term, term)


def _needs_no_copy(asked: StartCopy, running: TabletCopy | RowsCopy) -> bool:
    """Whether a newer config makes this node a witness that begins with the log alone, unlike the running copy.

    Over a lagging replica, a witness is copied, too."""
    if not isinstance(running, TabletCopy) or not running.replaces_nothing:
        return False
    return asked.config > running.asked.config and asked.pre_witness and not running.asked.pre_witness
