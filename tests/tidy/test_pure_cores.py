"""Pure modules read no clock, start nothing, open nothing, and draw only what is stable.

``random.Random.random`` and ``getrandbits`` give the same numbers in every Python version; the
higher draws do not, and the module's own functions share one hidden state."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.imports import imported
from tests.tidy.tree import ROOT, parsed, python_files, rules

# Draws of ``random.Random`` whose numbers differ between Python versions.
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


def violations(tree: ast.Module, forbidden: list[str]) -> Iterator[str]:
    for line, name in imported(tree, "stelae"):
        if any(name == f or name.startswith(f"{f}.") for f in forbidden):
            yield f"{line}: imports {name}"
        if name.startswith("random.") and name != "random.Random":
            yield f"{line}: takes {name} from the module's hidden generator"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield from _attribute(node, forbidden)
        elif "open" in forbidden and isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
            yield f"{node.lineno}: opens a file past Files"


def _attribute(node: ast.Attribute, forbidden: list[str]) -> Iterator[str]:
    if not isinstance(node.ctx, ast.Load):
        return
    of = node.value.id if isinstance(node.value, ast.Name) else ""
    if of == "random" and node.attr != "Random":
        yield f"{node.lineno}: random.{node.attr} uses the module's hidden generator"
    elif f"{of}.{node.attr}" in forbidden:
        yield f"{node.lineno}: uses {of}.{node.attr}"
    elif _is_draw(node):
        yield f"{node.lineno}: .{node.attr} differs between Python versions"


def _is_draw(node: ast.Attribute) -> bool:
    """A higher draw, on something that is called a generator: ``rng``, ``self._rng``, ``draw``."""
    if node.attr not in DRAWS:
        return False
    of = node.value
    name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
    return "rng" in name or "random" in name


def drivers() -> list[str]:
    return rules()["pure"]["drivers"]


def pure_modules(pattern: str) -> list[Path]:
    return [
        path for path in sorted(p.relative_to(ROOT) for p in ROOT.glob(pattern)) if path.as_posix() not in drivers()
    ]


OWN_IO: dict[str, list[str]] = rules()["engines"]["own_io"]


def engine_modules() -> dict[str, list[Path]]:
    """The modules of each engine, by the plugin's name, and of what engines share."""
    others, found = rules()["imports"]["plugins"], {}
    for path in python_files("plugins"):
        if path.parts[1] not in others:
            found.setdefault(path.parts[1], []).append(path)
    found["shared"] = [path for path in python_files("plugins") if path.parts[1] == "shared"]
    return found


def found_in(paths: list[Path], forbidden: list[str]) -> list[str]:
    return [f"{path}:{found}" for path in paths for found in violations(parsed(path), forbidden)]


@pytest.mark.parametrize("pattern", rules()["pure"]["modules"])
def test_pure_modules_depend_on_nothing_outside(pattern: str) -> None:
    paths = pure_modules(pattern)
    assert paths, f"{pattern} matches nothing: the module moved, and so must the rule"
    found = found_in(paths, rules()["pure"]["forbidden"])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("driver", drivers())
def test_a_driver_exists_and_needs_to_be_one(driver: str) -> None:
    found = list(violations(parsed(Path(driver)), rules()["pure"]["forbidden"]))
    assert found, f"{driver} is pure by now: take it off the list"


def test_engines_reach_the_outside_through_their_services_alone() -> None:
    engines = engine_modules()
    assert engines and set(OWN_IO) <= set(engines)
    found = []
    for engine, paths in engines.items():
        found += found_in(
            paths, [name for name in rules()["engines"]["forbidden"] if name not in OWN_IO.get(engine, ())]
        )
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("engine", "needed"), [(e, n) for e, needs in OWN_IO.items() for n in needs])
def test_an_engine_needs_what_it_is_allowed_beside_its_services(engine: str, needed: str) -> None:
    assert needed in rules()["engines"]["forbidden"]
    assert found_in(engine_modules()[engine], [needed]), f"{engine} does without {needed} by now: take it off the list"


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
        "open('x')",
    ],
)
def test_a_breach_of_purity_is_found(source: str) -> None:
    assert list(violations(ast.parse(source), rules()["pure"]["forbidden"]))


@pytest.mark.parametrize(
    "source",
    ["import threading\nthreading.Thread(target=f).start()", "from threading import Timer", "from pathlib import Path"],
)
def test_an_engine_that_reaches_outside_is_found(source: str) -> None:
    assert list(violations(ast.parse(source), rules()["engines"]["forbidden"]))


def test_the_stable_draws_and_the_type_are_allowed() -> None:
    source = "import random\nfrom random import Random\nx: random.Random\n"
    source += "rng.random()\nself._rng.getrandbits(8)"
    assert not list(violations(ast.parse(source), rules()["pure"]["forbidden"]))


def test_an_engine_may_take_a_lock() -> None:
    source = "import threading\nself._lock = threading.Lock()"
    assert not list(violations(ast.parse(source), rules()["engines"]["forbidden"]))
