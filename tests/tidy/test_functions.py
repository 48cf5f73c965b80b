"""Functions fit on half a screen: a ratchet that may only go down."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tidy.functions import figures, functions, measured
from tests.tidy.ratchet import recorded
from tests.tidy.tree import rules


def test_no_function_is_above_the_hard_limit() -> None:
    limit = rules()["limits"]["function_lines_max"]
    found = [f"{f.place}: {f.length}" for f in measured() if f.length > limit]
    assert not found, "\n".join(found)


def test_long_functions_are_no_longer_and_no_more_than_recorded() -> None:
    found = measured()
    now, limit = figures(found), recorded()
    longest = "\n".join(f"{f.length} {f.place}" for f in found[: min(limit["long_count"] + 5, 20)])
    assert all(now[name] <= limit[name] for name in now), f"{now} above {limit}:\n{longest}"


def test_the_recorded_figures_are_no_higher_than_the_code_needs() -> None:
    now, limit = figures(measured()), recorded()
    assert all(limit[name] <= now[name] for name in now), (
        f"the code got better: {now}, recorded {limit}; keep it so with `make ratchet`"
    )


def test_length_leaves_out_docstring_and_decorators_and_sees_methods() -> None:
    source = 'class A:\n    @x\n    def f(self):\n        """One\n        two."""\n        return 1\n'
    (found,) = functions(ast.parse(source), Path("a.py"))
    assert found.length == 2
