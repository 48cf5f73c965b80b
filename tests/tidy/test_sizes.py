"""Sizes: the kernel proper stays small enough to be read, and no file grows into a maze."""

from __future__ import annotations

from pathlib import Path

from tests.tidy.tree import ROOT, python_files, rules


def lines(path: Path) -> int:
    """As ``wc -l`` counts."""
    return (ROOT / path).read_bytes().count(b"\n")


def test_the_kernel_proper_is_within_its_budget() -> None:
    """One person can read all of it before changing any of it."""
    kernel = [path for path in python_files("kernel") if path.parts[2] in ("spi", "wire", "host")]
    counts = {package: sum(lines(p) for p in kernel if p.parts[2] == package) for package in ("spi", "wire", "host")}
    assert all(counts.values()), f"nothing was counted: {counts}"
    budget = rules()["limits"]["kernel_lines_max"]
    assert sum(counts.values()) <= budget, f"{counts} are above {budget} lines: make room first"


def test_no_python_file_is_longer_than_the_limit() -> None:
    limit = rules()["limits"]["file_lines_max"]
    found = [f"{path}: {lines(path)}" for path in python_files() if lines(path) > limit]
    assert not found, f"above {limit} lines, split by job:\n" + "\n".join(found)
