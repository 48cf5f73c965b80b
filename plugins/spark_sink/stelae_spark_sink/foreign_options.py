"""The options of other connectors, and what to use instead of each."""

from __future__ import annotations

from collections.abc import Mapping


def _use(name: str) -> str:
    return f"use {name!r}"


_NEAREST = "each task reads from the nearest replica; leave it out"
_RETRIED = "scans continue at another replica by themselves; leave it out"
_NO_VERSIONS = "a table has times, not version numbers; use 'timestampAsOf'"
_ROWS = "use 'maxRowsPerTrigger'"
_ALTER = "add and drop columns with alter_table of the Python client; leave it out"
_DIVIDED = "the client divides rows by tablet; leave it out"
_OPEN = "connections have no authentication and no encryption; leave it out, and use a network of your own"
_COST = "use 'targetPartitionBytes'"

FOREIGN: Mapping[str, str] = {
    # kudu-spark
    "kudu.master": _use("masters"),
    "kudu.table": _use("table"),
    "kudu.snapshottimestampms": "use 'timestampAsOf' with a time such as '2026-06-01T12:00:00Z'",
    "kudu.scanlocality": _NEAREST,
    "kudu.faulttolerantscan": _RETRIED,
    "kudu.scanrequesttimeoutms": "use 'timeoutSeconds'",
    "kudu.socketreadtimeoutms": "use 'timeoutSeconds'",
    "kudu.keepaliveperiodms": "servers keep nothing between two pages of a scan; leave it out",
    "kudu.splitsizebytes": _COST,
    "kudu.batchsize": "servers choose the size of a page; leave it out",
    "kudu.operation": _use("operation"),
    "kudu.ignorenull": _use("ignoreNull"),
    "kudu.ignoreduplicaterowerrors": "use 'operation' with insert_ignore",
    "kudu.repartition": _DIVIDED,
    "kudu.repartition.sort": _DIVIDED,
    "kudu.handleschemadrift": _ALTER,
    "kudu.usedrivermetadata": "the driver sends each task what it needs; leave it out",
    "kudu.requireauthentication": _OPEN,
    "kudu.encryptionpolicy": _OPEN,
    "kudu.saslprotocolname": _OPEN,
    # Delta
    "versionasof": _NO_VERSIONS,
    "readchangedata": _use("readChangeFeed"),
    "startingversion": "a table has times, not version numbers; use 'startingTimestamp'",
    "endingversion": "a table has times, not version numbers; use 'endingTimestamp'",
    "maxfilespertrigger": _ROWS,
    "maxbytespertrigger": _ROWS,
    "ignoredeletes": "deletions are changes, with the type delete; leave it out, and filter by _change_type",
    "ignorechanges": "updates are changes; leave it out, and filter by _change_type",
    "txnappid": _use("source"),
    "txnversion": _use("epoch"),
    "partitionoverwritemode": "use 'replaceWhere'",
    "mergeschema": _ALTER,
    "overwriteschema": _ALTER,
    "badrecordspath": "use 'rejectsTable'",
    # Iceberg
    "as-of-timestamp": "use 'timestampAsOf' with a time such as '2026-06-01T12:00:00Z'",
    "snapshot-id": _NO_VERSIONS,
    "branch": _NO_VERSIONS,
    "tag": _NO_VERSIONS,
    "split-size": _COST,
    "stream-from-timestamp": _use("startingTimestamp"),
    "start-timestamp": _use("startingTimestamp"),
    "end-timestamp": _use("endingTimestamp"),
    # Kafka
    "startingoffsets": _use("startingTimestamp"),
    "endingoffsets": _use("endingTimestamp"),
    "maxoffsetspertrigger": _ROWS,
    "failondataloss": _use("failOnDroppedRanges"),
    # JDBC, and sources of files
    "url": _use("masters"),
    "dbtable": _use("table"),
    "path": "a table has a name, not a path: use 'table', and load() without an argument",
    "partitioncolumn": _COST,
    "numpartitions": _COST,
}
"""What to do instead, by the option's name in lower case."""
