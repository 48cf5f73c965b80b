"""Checks the rows that clients inserted with new keys: every acknowledged one is there once, no refused one is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from stelae_chaos.operations import AppendCall, ChaosFinding, ChaosOutcome, shown

CHECK: Final = "appends"


class AppendedRow(NamedTuple):
    """A row of the table at the end of a run."""

    client: int
    number: int
    text: str


def text_of(client: int, number: int) -> str:
    """Return the text of the row that a client inserts with a number."""
    return f"row {number} of client {client}"


def check_appends(appends: Iterable[AppendCall], rows: Sequence[AppendedRow]) -> list[ChaosFinding]:
    """Return a finding for every row that is lost, doubled, wrong, or from nowhere.

    Args:
        appends: every insert of every client.
        rows: all rows of the table at the end.
    """
    asked = {(one.client, one.number): one for one in appends}
    counts = Counter((row.client, row.number) for row in rows)
    found = [fact for one in asked.values() if (fact := _wrong(one, counts[one.client, one.number]))]
    for row in rows:
        key = f"row {row.client}/{row.number}"
        if (row.client, row.number) not in asked:
            found.append(ChaosFinding(check=CHECK, key=key, fact="no client inserted this row"))
        elif row.text != text_of(row.client, row.number):
            found.append(
                ChaosFinding(check=CHECK, key=key, fact=f"the row has the text {row.text!r}, which was not sent")
            )
    return found


def _wrong(one: AppendCall, count: int) -> ChaosFinding | None:
    fact = ""
    if one.error == "ALREADY_PRESENT":
        fact = "the insert of a new key was refused because the key exists: the insert took effect twice"
    elif count > 1:
        fact = f"the row is there {count} times"
    elif one.took_effect and not count:
        fact = "the acknowledged row is lost"
    elif one.outcome is ChaosOutcome.REFUSED and count:
        fact = "the row is there although its insert was refused"
    return ChaosFinding(check=CHECK, key=f"row {one.name}", fact=fact, operations=shown([one])) if fact else None
