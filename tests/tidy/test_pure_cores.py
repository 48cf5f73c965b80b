"""Pure cores read no clock, start nothing, open nothing, and draw only what is stable.

``random.Random.random`` and ``getrandbits`` give the same numbers in every Python version; the
higher draws do not, and the module's own functions share one hidden state.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.imports import imported
from tests.tidy.tree import ROOT, parsed, rules

DRAWS = {
    "betavariate",
    "binomialvariate",
    "choice",
    "choices",
    "expovariate",
    "gammavariate",
    "gauss",
    "lognormvariate",
    "normalvariate",
    "paretovariate",
    "randbytes",
    "randint",
    "randrange",
    "sample",
    "seed",
    "shuffle",
    "triangular",
    "uniform",
    "vonmisesvariate",
    "weibullvariate",
}


def violations(tree: ast.Module) -> Iterator[str]:
    forbidden = set(rules()["pure"]["forbidden"])
    for line, name in imported(tree, "stelae"):
        if name.split(".")[0] in forbidden:
            yield f"{line}: imports {name}"
        if name.startswith("random.") and name != "random.Random":
            yield f"{line}: takes {name} from the module's hidden generator"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of_module = isinstance(node.value, ast.Name) and node.value.id == "random"
            if of_module and node.attr != "Random":
                yield f"{node.lineno}: random.{node.attr} uses the module's hidden generator"
            elif _is_draw(node):
                yield f"{node.lineno}: .{node.attr} differs between Python versions"


def _is_draw(node: ast.Attribute) -> bool:
    """A higher draw, on something that is called a generator: ``rng``, ``self._rng``, ``draw``."""
    if node.attr not in DRAWS:
        return False
    of = node.value
    name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
    return "rng" in name or "random" in name


def pure_modules() -> list[str]:
    return rules()["pure"]["modules"]


@pytest.mark.parametrize("pattern", pure_modules())
def test_pure_modules_depend_on_nothing_outside(pattern: str) -> None:
    paths = sorted(ROOT.glob(pattern))
    assert paths, f"{pattern} matches nothing: the module moved, and so must the rule"
    found = [
        f"{path.relative_to(ROOT)}:{violation}"
        for path in paths
        for violation in violations(parsed(path.relative_to(ROOT)))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import path",
        "import asyncio.events",
        "def f():\n    import socket",
        "import random\nrandom.random()",
        "from random import shuffle",
        "self._rng.choice([1, 2])",
        "rng.randrange(3)",
    ],
)
def test_a_breach_of_purity_is_found(source: str) -> None:
    assert list(violations(ast.parse(source)))


def test_the_stable_draws_and_the_type_are_allowed() -> None:
    source = "import random\nfrom random import Random\nx: random.Random\n"
    source += "rng.random()\nself._rng.getrandbits(8)"
    assert not list(violations(ast.parse(source)))
