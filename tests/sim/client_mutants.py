"""Planted bugs in the client's writer, in the time of a scan, and in schema changes."""

from __future__ import annotations

from tests.sim import client_mutations as mutations
from tests.sim.mutants import Mutant

CLIENT_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="client: first_incomplete is taken from the batch",
        rule="durability 16, behaviour C17",
        target="stelae.client.writer_core:encode_request",
        replacement=mutations.first_incomplete_of_the_batch,
        invariant="exactly_once",
    ),
    Mutant(
        name="client: first_incomplete is above an unanswered operation",
        rule="durability 16, behaviour C17",
        target="stelae.client.writer_core:encode_request",
        replacement=mutations.first_incomplete_above_the_batch,
        invariant="exactly_once",
    ),
    Mutant(
        name="client: a write with an unknown outcome is sent again with a new number",
        rule="durability 16",
        target="stelae.client.writer_core:WriterCore._retry",
        replacement=mutations.assign_new_numbers,
        invariant="exactly_once",
    ),
    Mutant(
        name="client: a retry carries another payload",
        rule="durability 16",
        target="stelae.client.writer_core:WriterCore._retry",
        replacement=mutations.change_the_payload,
        invariant="exactly_once",
    ),
    Mutant(
        name="client: an answer is given to the next operation",
        rule="behaviour C2",
        target="stelae.client.writer_core:WriterCore._take_reply",
        replacement=mutations.answer_the_next_operation,
        invariant="exactly_once",
    ),
    Mutant(
        name="client: an unanswered operation is reported as done",
        rule="behaviour C2",
        target="stelae.client.writer_core:WriterCore._retry",
        replacement=mutations.report_as_done,
        invariant="acknowledged_writes",
    ),
    Mutant(
        name="client: an unanswered operation is dropped when the leader changes",
        rule="behaviour C2",
        target="stelae.client.writer_core:WriterCore._retry",
        replacement=mutations.drop_when_the_leader_changes,
        invariant="liveness",
    ),
    Mutant(
        name="snapshots: a replica serves a time above what it has applied",
        rule="durability 14",
        target="stelae.server.tserver.scan_time:settled",
        replacement=mutations.settle_any_time,
        invariant="snapshot_repeatability",
    ),
    Mutant(
        name="snapshots: a fresh read gets whatever is applied",
        rule="behaviour C14",
        target="stelae.server.tserver.scan_time:settled",
        replacement=mutations.settle_without_at_least,
        invariant="snapshot_repeatability",
    ),
    Mutant(
        name="snapshots: a leader serves a time by what it knows itself, without a majority",
        rule="durability 14",
        target="stelae.server.tserver.scan_time:confirm_as_leader",
        replacement=mutations.lead_without_a_majority,
        invariant="snapshot_repeatability",
        seed=10,
    ),
    Mutant(
        name="snapshots: a leader does not wait for the last entry of its log",
        rule="durability 14",
        target="stelae.server.tserver.scan_time:confirm_as_leader",
        replacement=mutations.lead_without_waiting,
        invariant="snapshot_repeatability",
        seed=19,
    ),
    Mutant(
        name="snapshots: a leader serves a time above its clock",
        rule="durability 14",
        target="stelae.server.tserver.scan_time:confirm_as_leader",
        replacement=mutations.lead_into_the_future,
        invariant="snapshot_repeatability",
    ),
    Mutant(
        name="alter: rows of an older version than the one in force are applied",
        rule="durability 16",
        target="stelae.host.apply:other_version",
        replacement=mutations.take_rows_of_any_version,
        invariant="schema_changes",
    ),
    Mutant(
        name="alter: a schema is applied after any version",
        rule="durability 27",
        target="stelae.host.apply:ApplyGroup.__init__",
        replacement=mutations.take_schemas_of_any_version,
        invariant="schema_changes",
    ),
)
