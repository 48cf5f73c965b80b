"""The report of ``stelae bench spark``: collects the rounds, makes the document, and formats it for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from stelae_bench.figures import spread
from stelae_bench.machine import python_of
from stelae_bench.table import aligned


class Pass(StrEnum):
    """What is measured once in each round."""

    READ = "read"
    READ_NOTHING = "read_nothing"
    READ_CLIENT = "read_client"
    WRITE = "write"
    WRITE_NOTHING = "write_nothing"
    WRITE_CLIENT = "write_client"


READING = (Pass.READ, Pass.READ_NOTHING, Pass.READ_CLIENT)
WRITING = (Pass.WRITE, Pass.WRITE_NOTHING, Pass.WRITE_CLIENT)

AIMS: Mapping[str, float] = {"reading": 0.5, "writing": 0.8}
"""The least speed, as a share of that of the source or sink that does nothing."""


@dataclass(slots=True, kw_only=True)
class SparkReport:
    """Everything that was measured.

    Attributes:
        rows: rows of each pass.
        seconds: how long each pass took, in the order of the rounds.
        machine: see ``machine.describe``; with the versions of Spark and Java, seed, rounds and settings.
        problems: why the results cannot be trusted; empty if they can.
    """

    rows: int
    seconds: dict[Pass, list[float]] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every pass read or wrote all rows."""
        return not self.problems

    def document(self) -> dict[str, Any]:
        """Return the ``--json`` document. A value is the median; ``_min`` and ``_max`` have the extremes.

        Ratios are computed within each round."""
        return {
            "reading": self._figures(*READING, aim=AIMS["reading"]),
            "writing": self._figures(*WRITING, aim=AIMS["writing"]),
            "rows": self.rows,
            "machine": dict(self.machine),
            "problems": self.problems,
            "ok": self.ok,
        }

    def _figures(self, ours: Pass, nothing: Pass, client: Pass, *, aim: float) -> dict[str, Any] | None:
        """Return the figures of reading or of writing; ``None``: no round was completed."""
        seconds = self.seconds
        if not all(seconds.get(one) for one in (ours, nothing, client)):
            return None
        versus = {
            name: [other / own for own, other in zip(seconds[ours], seconds[beside], strict=True)]
            for name, beside in (("vs_nothing", nothing), ("vs_client", client))
        }
        return {
            **self._speed("rows_per_s", ours),
            **self._speed("nothing_rows_per_s", nothing),
            **self._speed("client_rows_per_s", client),
            **spread(versus["vs_nothing"]).fields("vs_nothing"),
            **spread(versus["vs_client"]).fields("vs_client"),
            "aim_vs_nothing": aim,
            "aim_reached": spread(versus["vs_nothing"]).median >= aim,
        }

    def _speed(self, name: str, one: Pass) -> dict[str, float]:
        return spread([self.rows / seconds for seconds in self.seconds[one]]).fields(name)


def lines(document: Mapping[str, Any]) -> list[str]:
    """Return the lines to print."""
    machine, versions = document["machine"], document["machine"]["versions"]
    return [
        *_table("reading", "the source that does nothing", document["reading"]),
        *_table("writing", "the sink that does nothing", document["writing"]),
        f"rows           {document['rows']:,} of eight columns in each pass",
        f"spark          {versions['pyspark']} with Java {versions['java']}, {machine['settings']['master']}",
        f"machine        {machine['cpu_count']} cores, {machine['cpu_model']}, {python_of(machine)}",
        f"method         medians of {machine['rounds']} interleaved rounds, seed {machine['seed']}",
        "",
        "ok" if document["ok"] else "NOT OK",
    ]


def _table(what: str, nothing: str, found: Mapping[str, Any] | None) -> Sequence[str]:
    if found is None:
        return [f"{what} was not measured", ""]
    cells = [
        (f"{what} with Spark", *_cells(found, "rows_per_s", ",.0f"), ""),
        (nothing, *_cells(found, "nothing_rows_per_s", ",.0f"), ""),
        ("the client alone", *_cells(found, "client_rows_per_s", ",.0f"), ""),
        ("share of doing nothing", *_cells(found, "vs_nothing", ".0%"), _aim(found)),
        ("share of the client", *_cells(found, "vs_client", ".0%"), ""),
    ]
    return [*aligned([("rows/s", "median", "(min - max)", "aim"), *cells]), ""]


def _cells(found: Mapping[str, Any], name: str, form: str) -> tuple[str, str]:
    low, high = found[f"{name}_min"], found[f"{name}_max"]
    return f"{found[name]:{form}}", f"({low:{form}} - {high:{form}})"


def _aim(found: Mapping[str, Any]) -> str:
    return f"{found['aim_vs_nothing']:.0%}: {'reached' if found['aim_reached'] else 'NOT reached'}"
