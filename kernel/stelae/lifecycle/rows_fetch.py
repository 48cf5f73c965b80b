"""Fetches the rows for a replica without rows into its stage, from the first source that has what its log continues.

A source that does not answer, whose rows do not meet the log, or whose bytes are damaged is passed over. After an
interruption the copy goes on with what is in the stage (``durability.md`` rules 18 and 21)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from stelae.host.hybrid_clock import physical_us
from stelae.host.replica import Replica
from stelae.host.start_copy import StartCopy
from stelae.lifecycle.blocking_steps import OffLoop, Steps
from stelae.lifecycle.copy_environment import CopyControlFlags, CopyEnvironment
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_fences import CopyFences, inconsistent
from stelae.lifecycle.copy_items import ItemKind, kind_of
from stelae.lifecycle.copy_source import ALL_DAMAGED, ChosenSource
from stelae.lifecycle.copy_space import CopySpace
from stelae.lifecycle.copy_stage import CopyStage
from stelae.lifecycle.copy_states import CopyPhase, CopyStepOutcome
from stelae.spi.copy_plan import CopyOffer, CopyPlan, CopySnapshot, Fences
from stelae.spi.errors import StelaeError, Unavailable
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.members import Member

_ENDS = frozenset({CopyStepOutcome.CANCELLED, CopyStepOutcome.FULL, CopyStepOutcome.FAILED})
"""No other source changes these outcomes."""


class FetchedRows(NamedTuple):
    """Rows that are verified in the stage."""

    snapshot: CopySnapshot  #: Without the items of the log.
    facts: CopyFacts


class RowsFetch:
    """The fetch of one copy.

    Args:
        asked: the request of the leader.
        replica: the replica without rows. It runs.
        stage: where the rows arrive."""

    def __init__(
        self,
        environment: CopyEnvironment,
        asked: StartCopy,
        replica: Replica,
        stage: CopyStage,
        control: CopyControlFlags,
        source: ChosenSource,
    ) -> None:
        self._env = environment
        self._asked = asked
        self._replica = replica
        self._stage = stage
        self._control = control
        self._source = source
        self._export_of: NodeId | None = None  # The source whose files are of no use.
        self._rounds = len(asked.sources) - 1
        self._bytes_done = 0
        self._why = "no source was named"
        self.begun = False  #: Something is in the stage.
        self.phase = CopyPhase.PREPARING  #: What it does, for people.

    def steps(self) -> Steps[FetchedRows]:
        """Return rows that are complete and verified. Raises ``Unavailable`` if no source has such."""
        while True:
            found = yield from self._from_next_source()
            if found is not None:
                return found
            self._rounds -= 1
            if self._rounds < 0:
                raise Unavailable(self._why)

    def _from_next_source(self) -> Steps[FetchedRows | None]:
        """Try one source. Return ``None`` if it cannot be used now: ``_why`` says why."""
        if not self._asked.sources:
            return None
        self.phase = CopyPhase.PREPARING
        source = yield from self._source.next()
        self._check_cancelled()
        if source is None:
            raise Unavailable(ALL_DAMAGED)
        found = yield from self._open(source)
        if found is None:
            return None
        yield from self._make_room(found.snapshot)
        outcome = yield from self._fetch(found.snapshot)
        self._check_cancelled()
        if outcome in _ENDS:
            raise Unavailable(self._why)
        return found if outcome is CopyStepOutcome.DONE else None

    # -- the snapshot --------------------------------------------------------------------------------

    def _open(self, source: Member) -> Steps[FetchedRows | None]:
        """Open a session: for the files of the source, and if they do not meet the log, for an export as of now."""
        forms = (True,) if source.node_id == self._export_of else (False, True)
        for as_export in forms:
            self._check_cancelled()
            try:
                offer = yield from self._source.begin(source, as_export=as_export)
                wrong = yield from self._wrong(offer.snapshot)
            except StelaeError as error:
                self._why = f"{source.node_id} does not serve the copy: {error}"
                return None
            if not wrong:
                self._export_of = source.node_id if as_export else None
                return FetchedRows(_rows_of(offer.snapshot), CopyFacts.from_bytes(offer.snapshot.facts))
            self._why = f"{source.node_id}: {wrong}"
            self._source.end()
        return None

    def _wrong(self, snapshot: CopySnapshot) -> Steps[str]:
        """Return why the rows of a snapshot cannot be those of this replica, or an empty text.

        Raises ``StelaeError`` if the server does not understand them."""
        node, replica = self._env.node, self._replica
        refused = yield OffLoop(lambda: inconsistent(snapshot, self._asked.tablet_id))
        fences = CopyFences(
            node_id=node.node_id,
            op_ids=Fences(tombstone=ZERO, config_op_id=replica.status.committed_config.op_id),
            leader_config=self._asked.config,
            consensus=node.config.consensus.name,
            store=node.config.store.name,
            store_format=node.engines.store.files_format,
            keeps_rows="durable_flush" in node.engines.store.capabilities,
        )
        refused = refused or fences.refusal(snapshot)
        if refused is not None:
            return str(refused)
        self._env.check_facts(CopyFacts.from_bytes(snapshot.facts))
        base, applied = replica.flusher.log_base, replica.applier.applied
        if snapshot.base.index < base.index:
            return f"its rows are as of {snapshot.base}, and the log of this replica begins after {base}"
        if snapshot.base.index > applied.index:
            return f"its rows are as of {snapshot.base}, and this replica knows entries up to {applied} as committed"
        return ""

    def _make_room(self, snapshot: CopySnapshot) -> Steps[None]:
        """Have room made for the rows if they do not fit on the disk. Raises ``Unavailable`` if that is not enough.

        What is removed for them is an effect, so the guards are applied again before it (rule 17)."""
        space = CopySpace(self._env, self._asked.tablet_id, snapshot, self._control.cancelled)
        if (yield from space.fits()):
            return
        refused = yield from space.refusal()
        if refused is None and (self._replica.failure or self._asked.term < self._replica.status.term):
            raise Unavailable("the replica has failed, or knows a later term by now; its leader asks again")
        refused = refused or (yield from space.make())
        if refused is not None:
            raise Unavailable(str(refused))

    # -- the bytes -----------------------------------------------------------------------------------

    def _fetch(self, snapshot: CopySnapshot) -> Steps[CopyStepOutcome]:
        """Fetch the rows into the stage, and verify them."""
        env, stage = self._env, self._stage
        if not self.begun:
            self.begun, self._rounds = True, env.settings.rounds_max
        now_us = physical_us(env.node.time.last)
        yield OffLoop(lambda: stage.prepare(snapshot, now_us))
        self.phase = CopyPhase.FETCHING
        result = yield from env.fetch(self._plan(snapshot), stage, self._control)
        if self._control.latest.bytes_done > self._bytes_done:  # Rounds count only while nothing arrives.
            self._bytes_done, self._rounds = self._control.latest.bytes_done, env.settings.rounds_max
        outcome, self._why = self._source.fetched(result)
        if outcome is not CopyStepOutcome.DONE:
            return outcome
        self.phase = CopyPhase.VERIFYING
        damaged = yield OffLoop(lambda: stage.verify(self._control.cancelled))
        if damaged:
            self._source.stay()
            self._why = (
                f"{len(damaged)} items in the stage are damaged, the first one is {damaged[0]!r}; check the disk"
            )
            return CopyStepOutcome.DAMAGED
        env.crash.hit("rows.after_verified")
        return CopyStepOutcome.DONE

    def _plan(self, snapshot: CopySnapshot) -> CopyPlan:
        offer: CopyOffer | None = self._source.offer
        assert offer is not None
        fences = Fences(tombstone=ZERO, config_op_id=ZERO)  # They were checked.
        return CopyPlan(offer=msgspec.structs.replace(offer, snapshot=snapshot), items=snapshot.items, fences=fences)

    def _check_cancelled(self) -> None:
        if self._control.cancelled():
            raise Unavailable(self._control.why_cancelled)


def _rows_of(snapshot: CopySnapshot) -> CopySnapshot:
    """Return a snapshot without the items of the log."""
    rows = tuple(item for item in snapshot.items if kind_of(item.name) is not ItemKind.LOG)
    return msgspec.structs.replace(snapshot, items=rows)
