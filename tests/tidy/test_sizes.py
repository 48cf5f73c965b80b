"""Sizes: the kernel proper stays small enough to be read, and no file grows into a maze."""

from __future__ import annotations

from pathlib import Path

from tests.tidy import functions
from tests.tidy.functions import kernel_lines
from tests.tidy.tree import ROOT, python_files, rules


def lines(path: Path) -> int:
    """As ``wc -l`` counts."""
    return (ROOT / path).read_bytes().count(b"\n")


def test_the_kernel_proper_comes_closer_to_its_budget_with_every_change() -> None:
    """Decision 14: while the budget is not met, what was reached is a record that only falls."""
    counts, recorded = kernel_lines(), functions.recorded().get("kernel_lines")
    assert all(counts.values()), f"nothing was counted: {counts}"
    total, budget = sum(counts.values()), rules()["limits"]["kernel_lines_max"]
    if total <= budget:
        assert recorded is None, f"{total} lines are within {budget}: take the record out"
    else:
        assert recorded is not None and total <= recorded, (
            f"{counts} are {total} lines, above the {recorded} that were reached already; "
            f"the budget is {budget}: see docs/adr/0014-the-kernels-line-budget.md"
        )


def test_no_python_file_is_longer_than_the_limit() -> None:
    limit = rules()["limits"]["file_lines_max"]
    found = [f"{path}: {lines(path)}" for path in python_files() if lines(path) > limit]
    assert not found, f"above {limit} lines, split by job:\n" + "\n".join(found)
