"""Carries out each change once: looks for an answer before a change is planned, and adds the answer to its batch.

The change and its answer are in one batch. So a new leader finds both or neither. Refusals are kept, too. Otherwise a
delayed copy of a request could be carried out after its client got the refusal."""

from __future__ import annotations

import msgspec

from stelae.protocol.master_errors import StaleChange
from stelae.protocol.master_messages import ChangeOutcome, ChangeRefused, ChangeRequest, decode_outcome, encode_outcome
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.housekeeping import client_lock
from stelae.server.master.core.locks import LockRequest
from stelae.server.master.core.mutations import Mutation
from stelae.server.master.core.records import RequestRecord
from stelae.spi.errors import CallerError, PayloadMismatch
from stelae.spi.ids import client_id
from stelae.wire.refusals import TEXT_LENGTH_MAX

_SEQUENCE_LIMIT = 1 << 63


def known_verdict(catalog: Catalog, request: ChangeRequest) -> ChangeOutcome | None:
    """Return the recorded answer to a request, or ``None`` if the request is new.

    Raises ``BadIdentifier`` or ``CallerError`` if the identity is not valid, ``StaleChange`` if the answer is
    forgotten, and ``PayloadMismatch`` if the identity belongs to another change."""
    client_id(request.client_id)
    if not 1 <= request.first_incomplete <= request.sequence < _SEQUENCE_LIMIT:
        what = f"sequence {request.sequence} with first incomplete {request.first_incomplete}"
        raise CallerError(f"{what}: expected 1 <= first incomplete <= sequence < 2**63; clients count both from 1")
    found = catalog.requests.get(request.client_id, {}).get(request.sequence)
    if found is not None:
        if found.digest != request.digest:
            raise PayloadMismatch(f"sequence {request.sequence} of client {request.client_id} was another change")
        return decode_outcome(found.answer)
    client = catalog.clients.get(request.client_id)
    if client is not None and request.sequence <= client.floor:
        what = f"answers to client {request.client_id} up to sequence {client.floor} are forgotten"
        raise StaleChange(f"{what}: describe the table to see whether sequence {request.sequence} was carried out")
    return None


def identified(mutation: Mutation, request: ChangeRequest, wall_us: int) -> Mutation:
    """Return the mutation with its answer added to its batch."""
    assert mutation.answer is not None
    record = _record(request, mutation.answer, wall_us)
    batch = CatalogBatch(puts=(*mutation.batch.puts, record))
    locks = _locks(request)
    merged = LockRequest(write=(*mutation.locks.write, *locks.write), read=(*mutation.locks.read, *locks.read))
    return msgspec.structs.replace(mutation, batch=batch, locks=merged)


def refusal(request: ChangeRequest, error: CallerError, wall_us: int) -> Mutation:
    """Return a mutation that only records a refusal, with as much of its text as an answer has."""
    verdict = ChangeRefused(code=error.code, detail=str(error)[:TEXT_LENGTH_MAX])
    batch = CatalogBatch(puts=(_record(request, verdict, wall_us),))
    return Mutation(batch=batch, locks=_locks(request), answer=verdict)


def _record(request: ChangeRequest, verdict: ChangeOutcome, wall_us: int) -> RequestRecord:
    return RequestRecord(
        client_id=request.client_id,
        sequence=request.sequence,
        digest=request.digest,
        answer=encode_outcome(verdict),
        decided_us=wall_us,
    )


def _locks(request: ChangeRequest) -> LockRequest:
    """Return the locks of a request.

    They are its identity, so that a duplicate is not planned at the same time, and the client's floor, which must not
    rise."""
    identity = f"request/{request.client_id}/{request.sequence}"
    return LockRequest(write=(identity,), read=(client_lock(request.client_id),))
