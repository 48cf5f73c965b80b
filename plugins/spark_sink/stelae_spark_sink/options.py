"""The options of the data source: one table, from which they are parsed, checked and documented.

Spark hands options over as text, with names in any case. An unknown name is an error, because a misspelt option that is
ignored would read or write something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Generic, TypeVar

from stelae.client import Contacts
from stelae.client.arguments import Compression
from stelae.client.filters import Filter
from stelae.client.writer_core import TIMEOUT_S_MAX
from stelae.spi.errors import CallerError
from stelae.spi.write import OpKind
from stelae_spark_sink import option_values as values
from stelae_spark_sink.foreign_options import FOREIGN

_Value = TypeVar("_Value")


class BadOption(CallerError, code="BAD_SPARK_OPTION"):
    """An option of the Spark data source that is unknown, missing, or has a value that cannot be used."""


class Use(StrEnum):
    """What a source is used for. An option applies to some of these."""

    READ = "read"
    WRITE = "write"
    STREAM_READ = "readStream"
    STREAM_WRITE = "writeStream"


_ALL = frozenset(Use)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOption(Generic[_Value]):
    """One option: how it is parsed, and what the documentation says about it."""

    name: str
    kind: str  #: Its values, for the documentation.
    parse: Callable[[str], _Value]  #: Raises ``ValueError`` with what is expected.
    default: _Value | None = None
    shown_default: str = ""  #: The default, for the documentation; empty: there is none.
    uses: frozenset[Use] = _ALL
    required: bool = False
    text: str  #: What it does, as one or more sentences.


MASTERS = SparkOption(
    name="masters",
    kind="addresses",
    parse=values.addresses,
    required=True,
    text="Addresses of the masters as `host:port,host:port`. One master that answers is enough. A job that runs "
    "follows the masters when they change. For jobs that start later, a DNS alias of the masters is best.",
)
TABLE = SparkOption(name="table", kind="text", parse=values.name, required=True, text="Name of the table.")
TIMEOUT_S = SparkOption(
    name="timeoutSeconds",
    kind="seconds",
    parse=values.seconds,
    default=120.0,
    shown_default="`120`",
    text="How long a task retries one page of a scan, or one batch of rows, before it fails. A write is retried "
    "for 300 seconds at most.",
)
_READS = frozenset({Use.READ, Use.STREAM_READ})
COLUMNS = SparkOption(
    name="columns",
    kind="names",
    parse=values.names,
    uses=_READS,
    text="The columns to read, separated by commas, or as a JSON list. Without it, all columns are read: Spark does "
    "not tell a Python data source which columns a query needs.",
)
WHERE: SparkOption[Sequence[Filter]] = SparkOption(
    name="where",
    kind="filters",
    parse=values.filters,
    default=(),
    shown_default="`[]`",
    uses=frozenset({Use.READ}),
    text="Read only the rows for which all filters hold, as a JSON list of `[column, operation, value]`: "
    '`[["station", "in", ["Oslo", "Bergen"]], ["celsius", ">", 20.5], ["note", "is null"]]`. The operations are those '
    "of the Python client. Decimals, dates and times are text, binary values are base64. A decimal may be a whole "
    "number, too.",
)
TIMESTAMP_AS_OF = SparkOption(
    name="timestampAsOf",
    kind="time",
    parse=values.time,
    uses=frozenset({Use.READ}),
    text="Read the table as of this time: `2026-06-01T12:00:00Z`, with a time zone, or the `timestamp` of a write. "
    "Without it, the driver chooses the present time when it plans the first query of a DataFrame. All tasks of a "
    "query read at one time.",
)
TARGET_PARTITION_BYTES = SparkOption(
    name="targetPartitionBytes",
    kind="bytes",
    parse=values.size_bytes,
    default=128 << 20,
    shown_default="`128m`",
    uses=_READS,
    text="About how many bytes of rows, of all columns, one Spark partition reads. A tablet that is larger is divided "
    "by key ranges. Small tablets of a table with more than 64 tablets are put together. A stream divides tablets "
    "while it reads the rows of the table for the first time.",
)
COMPRESSION: SparkOption[Compression] = SparkOption(
    name="compression",
    kind="name",
    parse=values.compression,
    default="none",
    shown_default="`none`",
    uses=_READS,
    text="With `lz4`, servers compress the rows that are not stored compressed, where that makes them smaller. It pays "
    "if the network between the executors and the tablet servers is slower than 4.6 Gbit/s.",
)
READ_CHANGE_FEED = SparkOption(
    name="readChangeFeed",
    kind="boolean",
    parse=values.boolean,
    default=False,
    shown_default="`false`",
    uses=_READS,
    text="Read the changes of the table instead of its rows. A stream needs it.",
)
STARTING_TIMESTAMP = SparkOption(
    name="startingTimestamp",
    kind="time",
    parse=values.feed_place,
    uses=_READS,
    text="Read the changes after this time, given as in `timestampAsOf`, or after the `position` of a feed of the "
    "Python client. A batch needs it. A stream without it begins with all rows of the table. A stream uses it for its "
    "first start, and its checkpoint afterwards.",
)
ENDING_TIMESTAMP = SparkOption(
    name="endingTimestamp",
    kind="time",
    parse=values.feed_place,
    uses=frozenset({Use.READ}),
    text="Read the changes up to this time, or this position. Without it, up to the last write before the query is "
    "planned.",
)
BEFORE_IMAGES = SparkOption(
    name="beforeImages",
    kind="boolean",
    parse=values.boolean,
    default=False,
    shown_default="`false`",
    uses=_READS,
    text="Also read the rows as they were before their change: `insert`, `update_preimage`, `update_postimage` and "
    "`delete` instead of `upsert` and `delete`. Each changed key is looked up for it.",
)
FAIL_ON_DROPPED_RANGES = SparkOption(
    name="failOnDroppedRanges",
    kind="boolean",
    parse=values.boolean,
    default=True,
    shown_default="`true`",
    uses=_READS,
    text="Whether a query of a change feed fails if a range was dropped that it has read or has to read. The rows of "
    "the range do not appear as deleted, so a copy of the table would keep them. With `false`, the query goes on "
    "without the range.",
)
MAX_ROWS_PER_TRIGGER = SparkOption(
    name="maxRowsPerTrigger",
    kind="integer",
    parse=values.count,
    uses=frozenset({Use.STREAM_READ}),
    text="The most changed rows of one batch of a stream. The driver reads the keys of the changes to find the end of "
    "the batch. Without it, a batch has all changes up to the last write.",
)

_WRITES = frozenset({Use.WRITE, Use.STREAM_WRITE})
OPERATION = SparkOption(
    name="operation",
    kind="name",
    parse=values.operation,
    default=OpKind.UPSERT,
    shown_default="`upsert`",
    uses=_WRITES,
    text="What is done with each row: `insert`, `upsert`, `update`, `delete`, `insert_ignore`, `update_ignore` or "
    "`delete_ignore`.",
)
SOURCE = SparkOption(
    name="source",
    kind="text",
    parse=values.source,
    uses=_WRITES,
    text="Name of the source of the rows, for exactly-once writes. A batch needs it together with `epoch`. A stream "
    "uses the id of its query without it.",
)
EPOCH = SparkOption(
    name="epoch",
    kind="integer",
    parse=values.epoch,
    uses=frozenset({Use.WRITE}),
    text="Number of the run of the `source`, higher than that of the run before. A run that is complete is not written "
    "again. In `foreachBatch` it is the batch id. Each operation on a table is complete by itself, and so is an "
    "overwrite with each `replaceWhere`. Two writes with one of these need two names of a source.",
)
FAIL_ON_ROW_ERRORS = SparkOption(
    name="failOnRowErrors",
    kind="boolean",
    parse=values.boolean,
    default=True,
    shown_default="`true`",
    uses=_WRITES,
    text="Whether the job fails if rows were not written, such as an insert whose key exists. All other rows are "
    "written in both cases. With `false`, the log of the driver has the number of these rows and the first of them.",
)
REJECTS_TABLE = SparkOption(
    name="rejectsTable",
    kind="text",
    parse=values.name,
    uses=_WRITES,
    text="Name of a table for the rows that were not written, with the reasons. `stelae.spark.create_rejects_table` "
    "creates it. Whether the job fails is decided by `failOnRowErrors`.",
)
IGNORE_NULL = SparkOption(
    name="ignoreNull",
    kind="boolean",
    parse=values.boolean,
    default=False,
    shown_default="`false`",
    uses=_WRITES,
    text="With `true`, a null leaves its column alone: an update or an upsert of an existing row keeps the value of "
    "the column, and a new row gets the default of the column.",
)
REPLACE_WHERE: SparkOption[Sequence[Filter]] = SparkOption(
    name="replaceWhere",
    kind="filters",
    parse=values.some_filters,
    uses=frozenset({Use.WRITE}),
    text="With the mode `overwrite`, replace only the rows for which all filters hold. The filters are written as "
    "those of `where`. A row of the DataFrame for which they do not hold is not written, which fails the job.",
)

OPTIONS: tuple[SparkOption[Any], ...] = (
    MASTERS,
    TABLE,
    COLUMNS,
    WHERE,
    TIMESTAMP_AS_OF,
    TARGET_PARTITION_BYTES,
    COMPRESSION,
    READ_CHANGE_FEED,
    STARTING_TIMESTAMP,
    ENDING_TIMESTAMP,
    BEFORE_IMAGES,
    FAIL_ON_DROPPED_RANGES,
    MAX_ROWS_PER_TRIGGER,
    OPERATION,
    SOURCE,
    EPOCH,
    IGNORE_NULL,
    REPLACE_WHERE,
    FAIL_ON_ROW_ERRORS,
    REJECTS_TABLE,
    TIMEOUT_S,
)
"""Every option, in the order of the documentation."""

_BY_NAME = {option.name.lower(): option for option in OPTIONS}

VIEW = (
    "use CREATE TEMPORARY VIEW v USING stelae OPTIONS (masters 'host:port', table 'name') to read a table: Spark "
    "does not keep the options of CREATE TABLE ... USING stelae"
)
WRITING_VIEW = (
    "in SQL, a view that writes has a list of its columns: CREATE TEMPORARY VIEW v (id BIGINT, ...) USING stelae "
    "OPTIONS (...), and INSERT INTO v"
)
NO_OPTIONS = (
    "the options 'masters' and 'table' are missing. In Python, set them with .option('masters', 'host:port')"
    f".option('table', 'name'). In SQL, {VIEW}"
)
OF_SPARK = {name.lower(): name for name in ("checkpointLocation", "queryName")}
"""Options of queries that write a stream. Spark takes them for itself and hands them over all the same; a batch and the
source of a stream do not get them, unless the user has set them there."""

TABLE_PROPERTIES = frozenset({"provider", "owner"})
"""Properties of a table that Spark adds to the options when it creates a table in its catalog."""


class SourceOptions:
    """The checked options of one use of the source. ``options[COLUMNS]`` is the value of an option, or its default."""

    def __init__(self, given: Mapping[str, str], *uses: Use) -> None:
        """Parse and check options.

        Args:
            given: the options as Spark hands them over.
            uses: what the source is used for. Each option must apply to at least one of these.

        Raises:
            BadOption: an option is unknown, does not apply to this use, cannot be parsed, or is missing.
        """
        left_out = OF_SPARK if Use.STREAM_WRITE in uses else ()
        given = {name.lower(): text for name, text in given.items() if name.lower() not in left_out}
        if not given:
            raise BadOption(NO_OPTIONS)
        if not TABLE_PROPERTIES.isdisjoint(given):
            raise BadOption(f"Spark cannot create a table with USING stelae; {VIEW}")
        self.contacts: Contacts | None = None
        """Nodes by which a task finds the cluster if all masters of the option were replaced."""
        self._values: dict[str, Any] = {}
        for name, text in given.items():
            option = _known(name, uses)
            try:
                self._values[option.name] = option.parse(text)
            except ValueError as error:
                raise BadOption(f"option {option.name!r} is {text!r:.80}; expected {error}") from None
        for option in OPTIONS:
            if option.required and option.name not in self._values:
                raise BadOption(f"the option {option.name!r} is missing; set it with .option({option.name!r}, ...)")

    def found_by(self, contacts: Contacts | None) -> SourceOptions:
        """Return the same options, with the nodes by which a task finds the cluster."""
        found = copy(self)
        found.contacts = contacts
        return found

    def __contains__(self, option: SparkOption[Any]) -> bool:
        """Return whether an option was given."""
        return option.name in self._values

    def __getitem__(self, option: SparkOption[_Value]) -> _Value:
        """Return the value of an option that is required or has a default."""
        found = self.get(option)
        assert found is not None, option.name
        return found

    def get(self, option: SparkOption[_Value]) -> _Value | None:
        """Return the value of an option, or ``None`` if it is not given and has no default."""
        found: _Value | None = self._values.get(option.name, option.default)
        return found


def write_timeout_s(options: SourceOptions) -> float:
    """Return how long one write or one change of an epoch is retried, in seconds: the client has a limit for writes."""
    return min(options[TIMEOUT_S], TIMEOUT_S_MAX)


def has_option_of_writes(given: Iterable[str]) -> bool:
    """Return whether an option of these names applies to writes only."""
    found = [_BY_NAME[name.lower()] for name in given if name.lower() in _BY_NAME]
    return any(option.uses <= _WRITES for option in found)


def _known(name: str, uses: Iterable[Use]) -> SparkOption[Any]:
    """Return the option of a name in lower case. It must apply to one of the uses."""
    option = _BY_NAME.get(name)
    if name in OF_SPARK:
        raise _not_for(OF_SPARK[name], {Use.STREAM_WRITE}, uses)
    if option is None:
        raise BadOption(f"unknown option {name!r}: {_advice(name, uses)}")
    if option.uses.isdisjoint(uses):
        raise _not_for(option.name, option.uses, uses)
    return option


def _not_for(name: str, applies: Iterable[Use], uses: Iterable[Use]) -> BadOption:
    named, used = " and ".join(sorted(applies)), " or ".join(sorted(uses))
    return BadOption(f"option {name!r} applies to {named}, not to {used}: leave it out")


def _advice(name: str, uses: Iterable[Use]) -> str:
    foreign = FOREIGN.get(name)
    if foreign is not None:
        return foreign
    known = {option.name.lower(): option.name for option in OPTIONS if not option.uses.isdisjoint(uses)}
    close = get_close_matches(name, known | (OF_SPARK if Use.STREAM_WRITE in uses else {}), 1)
    listed = ", ".join(known.values())
    return (f"did you mean {(known | OF_SPARK)[close[0]]!r}? " if close else "") + f"known options: {listed}"
