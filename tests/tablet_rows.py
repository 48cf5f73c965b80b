"""Writes to one tablet by itself, for tests of what is below tables: nothing divides the rows among tablets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from stelae.client.call_times import TIMEOUT_S
from stelae.client.connection import ConnectedTablet
from stelae.rows.batch_building import build_batch
from stelae.rows.operation_encoding import ROW_FORM_ROWS_MAX, operation
from stelae.spi.write import OpKind, OpResult


def write_to(
    tablet: ConnectedTablet, kind: OpKind, rows: Sequence[tuple[Any, ...]], *, timeout_s: float = TIMEOUT_S
) -> asyncio.Future[OpResult]:
    """Send one operation in the form in which tables send this number of rows."""
    given: Sequence[tuple[Any, ...]] | bytes = rows
    if len(rows) >= ROW_FORM_ROWS_MAX:
        deletes = kind in (OpKind.DELETE, OpKind.DELETE_IGNORE)
        layout = tablet.schema.key_layout if deletes else tablet.schema.layout
        given = build_batch(layout, rows).to_ipc()
    return tablet.send(operation(kind, given), timeout_s)
