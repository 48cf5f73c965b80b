"""The Python client: connects to a cluster, writes and reads its tables. It has a synchronous and an ``async`` form.

.. code-block:: python

    from stelae.client import connect

    with connect("127.0.0.1:7051,127.0.0.1:7052") as client:
        table = client.table("readings")
        table.insert([{"sensor": 1, "minute": 0, "celsius": 20.5}])
        print(table.scan(where=("celsius", ">", 20)).to_pandas())
"""

from stelae.client.async_client import AsyncClient, connect_async
from stelae.client.change_feed import AsyncChangeFeed
from stelae.client.contacts import Contacts
from stelae.client.dropped_ranges import RangeDropped
from stelae.client.epoch import AsyncEpoch, EpochComplete, LaterEpoch
from stelae.client.failures import RowFailure, RowsFailed, WriteResult
from stelae.client.feed_position import BadPosition
from stelae.client.feed_round import ChangesExpired
from stelae.client.masters import AsyncMasters
from stelae.client.replicas import AsyncReplicas, ChangeOvertaken, ChangeResult, ReplicaGone
from stelae.client.scan import AsyncScan
from stelae.client.session import AsyncSession, SessionOptions
from stelae.client.session_warnings import UnwrittenRows
from stelae.client.sync_change_feed import ChangeFeed
from stelae.client.sync_client import Client, Epoch, Scan, Session, Table, connect
from stelae.client.sync_masters import Masters
from stelae.client.sync_replicas import Replicas
from stelae.client.table import AsyncTable
from stelae.client.times import to_datetime
from stelae.client.tokens import ScanToken
from stelae.protocol.master_messages import (
    AddColumn,
    AddRange,
    AlterStep,
    DropColumn,
    DropRange,
    RenameColumn,
    RenameTable,
    SetDefault,
    SetReplicas,
)

__all__ = [
    "AddColumn",
    "AddRange",
    "AlterStep",
    "AsyncChangeFeed",
    "AsyncClient",
    "AsyncEpoch",
    "AsyncMasters",
    "AsyncReplicas",
    "AsyncScan",
    "AsyncSession",
    "AsyncTable",
    "BadPosition",
    "ChangeFeed",
    "ChangeOvertaken",
    "ChangeResult",
    "ChangesExpired",
    "Client",
    "Contacts",
    "DropColumn",
    "DropRange",
    "Epoch",
    "EpochComplete",
    "LaterEpoch",
    "Masters",
    "RangeDropped",
    "RenameColumn",
    "RenameTable",
    "ReplicaGone",
    "Replicas",
    "RowFailure",
    "RowsFailed",
    "Scan",
    "ScanToken",
    "Session",
    "SessionOptions",
    "SetDefault",
    "SetReplicas",
    "Table",
    "UnwrittenRows",
    "WriteResult",
    "connect",
    "connect_async",
    "to_datetime",
]
