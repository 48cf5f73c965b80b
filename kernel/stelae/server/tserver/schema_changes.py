"""Serves changes of a tablet's schema.

A change is an entry of the tablet's log. Its fence is the schema version that it follows."""

from __future__ import annotations

from functools import partial

from stelae.host.node import Node
from stelae.protocol.codec import decode, encode
from stelae.protocol.tablet_messages import ALTER, AlterReply, AlterRequest
from stelae.server.frames import only_frame
from stelae.server.limits import limits_of
from stelae.server.tserver.tablet_service import refuse_system_tablet, replica_of
from stelae.spi.errors import CallerError, Corrupt, SchemaMismatch, StelaeError
from stelae.spi.schema import Schema
from stelae.spi.write import WriteReply
from stelae.wire.requests import Request


class SchemaService:
    """Serves schema changes for the replicas of one node. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        """Register the handler."""
        self._node.messenger.serve(ALTER, self._alter)

    def stop(self) -> None:
        """Do nothing: the service holds no resources."""

    def _alter(self, request: Request) -> None:
        asked = decode(only_frame(request), AlterRequest)
        refuse_system_tablet(asked.tablet_id)
        try:
            schema = Schema.from_bytes(asked.schema)
        except Corrupt as error:
            raise CallerError(str(error)) from error
        replica = replica_of(self._node, asked.tablet_id)
        limits_of(self._node.config).check_schema(schema, replica.applier.store.schema)
        replica.change_schema(schema, partial(_answer, request, schema))


def _answer(request: Request, schema: Schema, result: WriteReply | StelaeError) -> None:
    if isinstance(result, StelaeError):
        request.refuse(result)
        return
    (answer,) = result.answers
    if answer.result.refusal:
        request.refuse(SchemaMismatch(answer.result.detail))
    else:
        request.reply([encode(AlterReply(schema.version))])
