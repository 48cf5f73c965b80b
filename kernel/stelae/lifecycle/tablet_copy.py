"""One copy of a tablet to this node: does the work of each ``CopyState``, until the replica runs or is abandoned.

Source: "Auto-vivifying Tablet Copy protocol" and "Follower Tablet Copy" of the tablet-copy design; ``durability.md``
rules 17 to 22. ``copy_states`` decides what follows. The tablet is locked from the first state to the last one. The
transport fetches into the stage, and ``copied_tablet`` builds the replica."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

from stelae.host.hybrid_clock import physical_us
from stelae.host.replica import Replica
from stelae.host.start_copy import StartCopy
from stelae.lifecycle.blocking_steps import OffLoop, Steps
from stelae.lifecycle.copied_tablet import CopiedTablet
from stelae.lifecycle.copy_cancelled import CopyCancelled
from stelae.lifecycle.copy_environment import CopyControlFlags, CopyEnvironment
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_fences import CopyFences, inconsistent
from stelae.lifecycle.copy_guards import REPLACED, CopyRefusal, CopyRefusalCode, TargetFacts, TargetState, refusal
from stelae.lifecycle.copy_source import ALL_DAMAGED, ChosenSource
from stelae.lifecycle.copy_space import CopySpace
from stelae.lifecycle.copy_states import CANCELLABLE, CopyPhase, CopySequence, CopyState, CopyStepOutcome
from stelae.lifecycle.copy_target_facts import gather
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding
from stelae.spi.copy_plan import CopyPlan, CopySnapshot, Fences
from stelae.spi.errors import Corrupt, Full, Overloaded, StelaeError
from stelae.spi.ids import OpId

log = logging.getLogger(__name__)

SET_ASIDE = "it lags behind the log of the leader, and a copy replaces it"
SET_ASIDE_DAMAGED = "it is damaged, and a copy replaces it"


class TabletCopy:
    """One copy. ``steps`` is run under the tablet's lock, in the pool for copies.

    Args:
        asked: the request of the leader. The caller holds a slot until the copy has ended.
    """

    def __init__(self, environment: CopyEnvironment, asked: StartCopy) -> None:
        self._env = environment
        self.asked = asked
        self.control = CopyControlFlags()
        self.reason = ""  #: Why the last work that was not done was not done.
        self.admitted = False  #: Whether the guards have let it begin. Nothing on this node has changed yet.
        self.sources_busy = False  #: Whether it has not begun, because a source had no slot.
        self.missing = False  #: Whether it was refused because a voter has no replica on this node.
        self.source = ChosenSource(environment, asked, self.control)
        self.sequence = CopySequence(replaces=False, rounds=len(asked.sources) - 1)
        self._found: TabletFinding | None = None
        self._here: TargetFacts | None = None
        self._aside: Replica | None = None
        self._facts: CopyFacts | None = None
        self._bytes_done = 0
        self._stage = environment.stage(asked.tablet_id)
        self._tablet = CopiedTablet(
            environment.node,
            environment.loader,
            environment.manager.look,
            environment.tombstones,
            asked.tablet_id,
            self._stage,
            environment.crash,
        )

    @property
    def begun(self) -> bool:
        """Whether the superblock may say COPYING, or did so."""
        return self.sequence.marked

    @property
    def phase(self) -> CopyPhase:
        """What the copy does, for people."""
        return self.sequence.phase

    @property
    def replaces_nothing(self) -> bool:
        """Whether this node had no replica of the tablet, at most a tombstone. False until it has looked."""
        return self._here is not None and self._here.state in (TargetState.DOES_NOT_EXIST, TargetState.DELETED)

    @property
    def committed(self) -> bool:
        """Whether the superblock says READY."""
        return self.sequence.committed

    def steps(self) -> Steps[None]:
        """Do the copy. Operating errors are not raised: they are in ``reason``."""
        sequence, tablet = self.sequence, self.asked.tablet_id
        while sequence.state is not CopyState.ENDED:
            before = sequence.state
            outcome = yield from self._outcome()
            after = sequence.step(outcome)
            why = "" if outcome is CopyStepOutcome.DONE else f" reason={self.reason}"
            log.info("copy tablet=%s from=%s outcome=%s to=%s%s", tablet, before, outcome, after, why)

    def _outcome(self) -> Steps[CopyStepOutcome]:
        """Do the work of the present state."""
        if self.control.cancelled() and self.sequence.state in CANCELLABLE:
            self.reason = self.control.why_cancelled
            return CopyStepOutcome.CANCELLED
        try:
            return (yield from self._WORKS[self.sequence.state](self))
        except CopyCancelled:
            outcome, self.reason = CopyStepOutcome.CANCELLED, self.control.why_cancelled
        except Full as error:
            outcome, self.reason = CopyStepOutcome.FULL, str(error)
        except Corrupt as error:
            outcome, self.reason = CopyStepOutcome.DAMAGED, str(error)
        except (StelaeError, OSError) as error:  # ``Files`` raises ``OSError`` for missing names.
            outcome, self.reason = CopyStepOutcome.FAILED, str(error)
        return outcome

    # -- before the first effect ---------------------------------------------------------------------

    def _check(self) -> Steps[CopyStepOutcome]:
        """Apply the guards. ``steps`` is run under the lock, so only term, vote and log can change afterwards."""
        env, asked = self._env, self.asked
        self._here, self._found = yield from gather(env, asked, lambda: env.manager.look(asked.tablet_id))
        self.sequence.replaces = self._here.state in REPLACED
        self.sequence.fetches_first = self._here.state is TargetState.DAMAGED
        found = refusal(asked, self._here)
        self.admitted = found is None
        if found is not None:
            if found.code is CopyRefusalCode.BAD_TERM:
                env.tombstones.note_term(asked.tablet_id, self._here.term)
            return self._refuse(found)
        env.admitted(asked.tablet_id)
        return CopyStepOutcome.DONE

    def _refuse(self, why: CopyRefusal) -> CopyStepOutcome:
        self.reason = str(why)
        self.missing = why.code is CopyRefusalCode.VOTER_WITHOUT_REPLICA
        return CopyStepOutcome.REFUSED

    def _open(self) -> Steps[CopyStepOutcome]:
        """Ask a source for its snapshot."""
        source = yield from self.source.next(at_once=self.sources_busy)
        if source is None:
            self.reason, self.sequence.rounds = ALL_DAMAGED, 0
            return CopyStepOutcome.REFUSED
        try:
            yield from self.source.begin(source)
        except StelaeError as error:
            self.reason = f"{source.node_id} does not serve the copy: {error}"
            self.sources_busy |= isinstance(error, Overloaded) and not self.sequence.marked
            return CopyStepOutcome.REFUSED
        self.sources_busy = False
        return CopyStepOutcome.DONE

    def _fence(self) -> Steps[CopyStepOutcome]:
        """Check the snapshot, and before the first effect the guards again (rules 17 and 18)."""
        snapshot = self._snapshot
        wrong = yield OffLoop(lambda: inconsistent(snapshot, self.asked.tablet_id))
        wrong = wrong or self._fence_refusal(self._last_op_id())
        if wrong is not None:
            if wrong.code is CopyRefusalCode.NOT_A_MEMBER:
                self.sequence.rounds = 0  # No other source changes that.
            self.reason = str(wrong)
            return CopyStepOutcome.REFUSED
        self._facts = CopyFacts.from_bytes(self._snapshot.facts)
        try:
            self._env.check_facts(self._facts)
        except StelaeError as error:
            self.reason = f"the copied superblock cannot be used: {error}"
            return CopyStepOutcome.REFUSED
        if self.sequence.marked:
            return CopyStepOutcome.DONE
        fits = yield from self._make_room()
        if fits is CopyStepOutcome.REFUSED:
            self.sequence.rounds = 0  # No other source changes that.
        return fits

    def _make_room(self) -> Steps[CopyStepOutcome]:
        """Refuse the copy if it does not fit on this node. A replica that lags is not set aside for it then.

        What is removed for it is an effect, so the guards are applied before it, and once more because it takes long
        (rule 17)."""
        space = CopySpace(self._env, self.asked.tablet_id, self._snapshot, self.control.cancelled)
        if not (yield from space.fits()):
            too_large = yield from space.refusal()
            if too_large is None:
                again = yield from self._check()
                if again is CopyStepOutcome.REFUSED:
                    return again
                too_large = yield from space.make()
            if too_large is not None:
                return self._refuse(too_large)
        return (yield from self._check())

    def _fence_refusal(self, last: OpId | None) -> CopyRefusal | None:
        node = self._env.node
        assert self._here is not None
        fences = CopyFences(
            node_id=node.node_id,
            op_ids=self._fences(last),
            leader_config=self.asked.config,
            consensus=node.config.consensus.name,
            store=node.config.store.name,
            store_format=node.engines.store.files_format,
            keeps_rows="durable_flush" in node.engines.store.capabilities,
        )
        return fences.refusal(self._snapshot)

    def _fences(self, last: OpId | None) -> Fences:
        assert self._here is not None
        return Fences(tombstone=last or OpId(0, 0), config_op_id=self._here.config)

    def _last_op_id(self) -> OpId:
        """Return the last op id that this replica ever had, as far as it is known now."""
        if self.sequence.marked:
            kept = self._tablet.block.tombstone
            return kept if isinstance(kept, OpId) else OpId(0, 0)
        assert self._here is not None and isinstance(self._here.last, OpId)
        return self._here.last

    @property
    def _snapshot(self) -> CopySnapshot:
        assert self.source.offer is not None
        return self.source.offer.snapshot

    def _set_aside(self) -> Steps[CopyStepOutcome]:
        """Set the replica aside. What was fetched before took time, so the guards are applied again (rule 17)."""
        node, manager, tablet = self._env.node, self._env.manager, self.asked.tablet_id
        damaged = self.sequence.fetches_first
        if damaged and (yield from self._check()) is CopyStepOutcome.REFUSED:
            return CopyStepOutcome.REFUSED
        replica = self._aside = node.replicas.get(tablet)
        reason = SET_ASIDE_DAMAGED if damaged else SET_ASIDE
        if replica is not None:
            yield from manager.set_aside(replica, reason)
        else:
            assert self._found is not None, "a replica that did not start was looked for in its files"
            yield from manager.set_aside_offline(self._found, reason)
        if damaged:
            self._env.replaced_damage.note(tablet, node.turns.now_us())
        found = self._found = yield from manager.look(tablet)
        if (
            found.consensus is not None and self._here is not None
        ):  # It may have learned a config until it was shut down.
            self._here = replace(self._here, config=found.consensus.committed_config.op_id)
        return CopyStepOutcome.DONE

    def _rehost(self) -> Steps[CopyStepOutcome]:
        """Start the replica again that could not be set aside. If it is a tombstone by now, it stays one."""
        if self._aside is not None:
            yield from self._env.manager.start_again(self._aside)
        return CopyStepOutcome.DONE

    # -- from the superblock COPYING on --------------------------------------------------------------

    def _mark(self) -> Steps[CopyStepOutcome]:
        """Make the superblock COPYING durable, if the source has reached what was set aside, too (rule 18)."""
        old = self._found.superblock if self._found is not None else None
        if old is not None and old.tombstone is not None:
            last = old.tombstone if isinstance(old.tombstone, OpId) else None
            unknown = CopyRefusal(CopyRefusalCode.LAST_OP_ID_UNKNOWN, "its last op id is not known any more")
            wrong = unknown if last is None else self._fence_refusal(last)
            if wrong is not None:
                return self._refuse(wrong)
        if self._found is not None and self._found.decision.action is StartupAction.ROLL_FORWARD:
            assert old is not None
            yield from self._env.manager.complete_deletion(old)
        yield from self._tablet.mark(old, self.asked.table_name)
        self.sequence.rounds = self._env.settings.rounds_max
        return CopyStepOutcome.DONE

    def _prepare_stage(self) -> Steps[CopyStepOutcome]:
        now_us = physical_us(self._env.node.time.last)
        yield OffLoop(lambda: self._stage.prepare(self._snapshot, now_us))
        return CopyStepOutcome.DONE

    def _fetch(self) -> Steps[CopyStepOutcome]:
        env, stage, offer = self._env, self._stage, self.source.offer
        assert offer is not None
        fences = self._fences(self._last_op_id())
        plan = CopyPlan(offer=offer, items=self._snapshot.items, fences=fences)
        result = yield from env.fetch(plan, stage, self.control)
        done = self.control.latest.bytes_done
        if done > self._bytes_done:  # Rounds count only while nothing arrives.
            self._bytes_done, self.sequence.rounds = done, env.settings.rounds_max
        outcome, self.reason = self.source.fetched(result)
        return outcome

    def _verify(self) -> Steps[CopyStepOutcome]:
        """Check digests and fences again: the kernel does not rely on the transport."""
        wrong = self._fence_refusal(self._last_op_id())
        if wrong is not None:
            self.reason = str(wrong)
            return CopyStepOutcome.FAILED
        damaged = yield OffLoop(lambda: self._stage.verify(self.control.cancelled))
        if damaged:
            self.reason = f"{len(damaged)} items in the stage are damaged, the first one is {damaged[0]!r}"
            return CopyStepOutcome.DAMAGED
        self._env.crash.hit("copy.after_verified")
        return CopyStepOutcome.DONE

    def _install_log(self) -> Steps[CopyStepOutcome]:
        complete = yield from self._tablet.install_log(self._snapshot, self.control.cancelled)
        if not complete:
            self.reason = self.control.why_cancelled
        return CopyStepOutcome.DONE if complete else CopyStepOutcome.CANCELLED

    def _install_rows(self) -> Steps[CopyStepOutcome]:
        assert self._facts is not None
        yield from self._tablet.install_rows(self._snapshot, self._facts, self.control.cancelled)
        return CopyStepOutcome.DONE

    def _merge(self) -> Steps[CopyStepOutcome]:
        yield from self._tablet.merge_metadata(self._snapshot)
        return CopyStepOutcome.DONE

    def _commit(self) -> Steps[CopyStepOutcome]:
        assert self._facts is not None
        yield from self._tablet.commit(self._snapshot, self._facts)
        return CopyStepOutcome.DONE

    def _host(self) -> Steps[CopyStepOutcome]:
        yield from self._tablet.host()
        self._env.replaced_damage.renew(self.asked.tablet_id, self._env.node.turns.now_us())
        return CopyStepOutcome.DONE

    def _abandon(self) -> Steps[CopyStepOutcome]:
        yield from self._tablet.abandon(drops_stage=self.sequence.drops_stage)
        return CopyStepOutcome.DONE

    _WORKS: ClassVar[Mapping[CopyState, Callable[[TabletCopy], Steps[CopyStepOutcome]]]] = {
        CopyState.CHECKING: _check,
        CopyState.OPENING: _open,
        CopyState.FENCING: _fence,
        CopyState.SETTING_ASIDE: _set_aside,
        CopyState.REHOSTING: _rehost,
        CopyState.MARKING: _mark,
        CopyState.STAGING: _prepare_stage,
        CopyState.FETCHING: _fetch,
        CopyState.VERIFYING: _verify,
        CopyState.INSTALLING_LOG: _install_log,
        CopyState.INSTALLING_ROWS: _install_rows,
        CopyState.MERGING: _merge,
        CopyState.COMMITTING: _commit,
        CopyState.HOSTING: _host,
        CopyState.ABANDONING: _abandon,
    }
