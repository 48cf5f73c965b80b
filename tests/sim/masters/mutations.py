"""The replacements of the masters' mutants.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from typing import Any

import msgspec

from stelae.lifecycle.masters_file import StoredMasters
from stelae.protocol.actions import DeleteReplica, Evicted, Terminal
from stelae.protocol.catalog_names import TableState, TabletState
from stelae.protocol.fences import FenceVerdict, Judgement
from stelae.protocol.master_messages import ChangeReply
from stelae.server.master.core import read_requests
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.events import CaughtUp, Decided, ReadIndexAnswered, Replicate, Reply
from stelae.server.master.core.locks import LockRequest
from stelae.server.master.core.mutations import table_lock
from stelae.server.master.core.operations import BatchOutcome
from stelae.server.master.core.reconcile import Transition
from stelae.server.master.core.records import TabletRecord
from stelae.server.master.core.servers import Liveness
from stelae.spi.consensus import Role
from stelae.spi.ids import OpId


def recognise_nothing(original: Any, catalog: Any, request: Any) -> Any:
    original(catalog, request)


def keep_no_answer(original: Any, mutation: Any, request: Any, wall_us: int) -> Any:
    return mutation


def begin_at_once(original: Any, self: Any, leadership: Any) -> bool:
    return True


def lock_identities_alone(original: Any, self: Any, owner: int, wanted: Any) -> Any:
    return original(self, owner, LockRequest(write=tuple(n for n in wanted.write if n.startswith("request/"))))


def unknown_is_failure(original: Any, self: Any, token: int, outcome: BatchOutcome, op_id: Any, applied: Any) -> Any:
    reported = BatchOutcome.CERTAINLY_NOT if outcome is BatchOutcome.UNKNOWN else outcome
    return original(self, token, reported, op_id, applied)


def unknown_is_success(original: Any, self: Any, event: Decided, leadership: Any, applied: Any) -> Any:
    asked = leadership.operations._open.get(event.token)
    effects = original(self, event, leadership, applied)
    if event.outcome is not BatchOutcome.UNKNOWN or asked is None or not isinstance(asked.answer, ChangeReply):
        return effects
    return [Reply(asked.asked, asked.answer)] if asked.asked is not None else []


def answer_before_the_commit(original: Any, self: Any, mutation: Any, leadership: Any, asked: Any = None) -> Any:
    effects = original(self, mutation, leadership, None)
    if effects and asked is not None and isinstance(mutation.answer, ChangeReply):
        return [*effects, Reply(asked, mutation.answer)]
    return effects or original(self, mutation, leadership, asked)


def replicate_in_two(original: Any, self: Any, mutation: Any, leadership: Any, asked: Any = None) -> Any:
    effects = original(self, mutation, leadership, asked)
    tablets = [r for r in mutation.batch.puts if isinstance(r, TabletRecord)]
    if not effects or not tablets or len(tablets) == len(mutation.batch.puts):
        return effects
    (whole,) = effects
    rest = tuple(r for r in mutation.batch.puts if not isinstance(r, TabletRecord))
    apart = Replicate(next(self._tokens), whole.term, CatalogBatch(puts=tuple(tablets)))
    return [Replicate(whole.token, whole.term, CatalogBatch(puts=rest)), apart]


def delete_unknown_tablets(original: Any, view: Any, tablet_id: Any, plan: Any) -> None:
    original(view, tablet_id, plan)
    if tablet_id not in view.catalog.tablets:
        for node_id, _ in view.servers.holding(tablet_id):
            fence = Terminal(state=TabletState.REMOVED)
            plan.actions.append(DeleteReplica(node_id=node_id, tablet_id=tablet_id, fence=fence))


def delete_without_the_fence(original: Any, action: Any, local: Any) -> Any:
    judged = original(action, local)
    return Judgement(FenceVerdict.ACT, "asked to") if judged.verdict is FenceVerdict.REFUSED else judged


def evict_by_an_invented_config(original: Any, view: Any, tablet: Any, config: Any, plan: Any) -> None:
    for node_id, status in view.servers.holding(tablet.tablet_id):
        if config.member(node_id) is None and status.config is not None:
            fence = Evicted(config_op_id=OpId(config.op_id.term + 1, 0), seen=status.config.op_id)
            plan.actions.append(DeleteReplica(node_id=node_id, tablet_id=tablet.tablet_id, fence=fence))


def delete_what_can_be_recalled(original: Any, view: Any, table: Any, tablet: Any, plan: Any) -> None:
    original(view, table, tablet, plan)
    if table.state is TableState.SOFT_DELETED:
        for node_id, _ in view.servers.holding(tablet.tablet_id):
            fence = Terminal(state=TabletState.REMOVED)
            plan.actions.append(DeleteReplica(node_id=node_id, tablet_id=tablet.tablet_id, fence=fence))


def replace_beside_the_old(original: Any, view: Any, tablet: Any) -> Any:
    _, fresh = original(view, tablet)
    return msgspec.structs.replace(tablet, since_us=view.wall_us), fresh


def omit_one_partition(original: Any, table_id: Any, partitions: Any, *rest: Any) -> Any:
    tablets = original(table_id, partitions, *rest)
    return tablets[:-1] if len(tablets) > 1 else tablets


def believe_any_report(original: Any, view: Any, table: Any, tablet: Any, plan: Any) -> None:
    original(view, table, tablet, plan)
    for _, status in view.servers.holding(tablet.tablet_id):
        if status.config is not None and status.config.op_id < tablet.config.op_id:
            plan.change_tablet(msgspec.structs.replace(tablet, config=status.config))


def count_before_it_is_applied(original: Any, self: Any, event: Any, applied: int) -> None:
    original(self, event, max(applied, event.index))


def count_from_the_answer(original: Any, self: Any, event: Any) -> None:
    original(self, ReadIndexAnswered(self._time, event.index) if isinstance(event, ReadIndexAnswered) else event)


def lead_by_node_id(original: Any, self: Any, tablet_id: Any) -> Any:
    leading = [(n, s) for n, s in self.servers.holding(tablet_id) if s.role is Role.LEADER]
    alive = [(n, s) for n, s in leading if self.servers.liveness(n, self.now_us) is not Liveness.DEAD]
    return max(alive, key=lambda one: one[0]) if alive else None


def lead_by_the_first_report(original: Any, self: Any, tablet_id: Any) -> Any:
    return next(((n, s) for n, s in self.servers.holding(tablet_id) if s.role is Role.LEADER), None)


def take_what_was_overtaken(original: Any, self: Any, heartbeat: Any, now_us: int) -> bool:
    original(self, heartbeat, now_us)
    return heartbeat.incarnation == self._servers[heartbeat.node_id].incarnation


def take_a_previous_run_for_a_restart(original: Any, self: Any, heartbeat: Any, now_us: int) -> bool:
    server = self._servers.get(heartbeat.node_id)
    if server is not None and heartbeat.incarnation != server.incarnation:
        server.incarnation = type(server.incarnation)("")
    return bool(original(self, heartbeat, now_us))


def ask_no_majority(original: Any, view: Any, tablet: Any, members: Any) -> None:
    return None


def settle_at_once(original: Any, view: Any, table: Any) -> Any:
    if table.state is not TableState.ALTERING:
        return None
    after = msgspec.structs.replace(table, state=TableState.RUNNING, fully_applied=None)
    return Transition(batch=CatalogBatch(puts=(after,)), locks=LockRequest(write=(table_lock(table.table_id),)))


def alter_at_once(original: Any, table: Any) -> None:
    """Allow a change while tablets lack the schema before: they will get a schema that does not follow theirs."""


def report_unknown_as_certainly_not(original: Any, result: Any, *, at_once: bool) -> Any:
    outcome = original(result, at_once=at_once)
    return BatchOutcome.CERTAINLY_NOT if outcome is BatchOutcome.UNKNOWN else outcome


def propose_in_any_term(original: Any, status: Any, term: int) -> bool:
    return bool(status.role is Role.LEADER)


def leave_out_entries(original: Any, self: Any, entries: Any) -> None:
    """Drop the entries, so that the catalog has only what the scan of the store has seen."""


def answer_without_a_leader(original: Any, self: Any, event: Any, view: Any, leadership: Any, leader: Any) -> Any:
    if leadership is None and leader is None and event.request.staleness_ms:
        return [read_requests._answer(event.token, event.request, view)]
    return original(self, event, view, leadership, leader)


def refuse_nothing(original: Any, self: Any) -> None:
    pass


def begin_as_if_current(original: Any, self: Any, replica: Any) -> None:
    original(self, replica)
    if not replica.status.config.members:
        self._take(CaughtUp(self._now().wall_us))


def keep_the_catalog(original: Any, self: Any) -> None:
    pass


def learn_any_masters(original: Any, self: Any, config: Any, cluster_created_us: int) -> bool:
    learned = bool(config.members and cluster_created_us and not self.are_others(cluster_created_us))
    if learned:
        self.follow(StoredMasters(cluster_created_us, config))
    return learned


def take_all_for_ours(original: Any, self: Any, told: Any) -> bool:
    return False


def hide_hearsay(original: Any, self: Any) -> Any:
    return msgspec.structs.replace(original(self), hearsay=False)


def rank_the_oldest_first(original: Any, view: Any) -> Any:
    config_id, leads = original(view)
    return (-config_id.term, -config_id.index), leads


def object_to_no_new_directory(original: Any, self: Any, name: str, new: Any, answer: Any) -> Any:
    return "" if answer.is_new else original(self, name, new, answer)


def object_to_no_master(original: Any, self: Any, new: Any, answer: Any) -> str:
    return ""


def confirm_before_the_first_entry(original: Any, replica: Any, done: Any) -> None:
    if replica.status.role is Role.LEADER and not replica.status.serving:
        done(replica.applier.timestamp)
    else:
        original(replica, done)
