"""The diagrams of the docs show all that the code can do, and nothing else.

The SVG is read back: each arrow and each box says in its attributes which causes it stands for."""

from __future__ import annotations

import importlib
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from itertools import product
from types import ModuleType

import pytest

from stelae.spi.members import JOINING, MemberType
from stelae_consensus_raft.config_change_rules import _MAY_BECOME
from stelae_consensus_raft.transitions import TRANSITIONS
from tests.tidy.tree import ROOT

SMALL = {"GO": {"A": "B", "B": None, "C": "C"}, "END": {"A": "C", "B": "C", "C": None}}


@pytest.fixture(scope="module")
def diagrams() -> Iterator[ModuleType]:
    """The Sphinx extension that draws the diagrams. It imports the one that generates tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs/_ext"))
        yield importlib.import_module("stelae_diagrams")
        for name in ("stelae_diagrams", "stelae_reference"):
            sys.modules.pop(name, None)


def read_back(image: str) -> dict[tuple[str, str], str]:
    """Return what a diagram shows: the state after each cause in each state."""
    root = ElementTree.fromstring(image)
    groups = list(root.iter("{http://www.w3.org/2000/svg}g"))
    states = [group.attrib["data-state"] for group in groups if "data-state" in group.attrib]
    shown: dict[tuple[str, str], str] = {}
    for group in groups:
        if "data-state" in group.attrib:
            stays = filter(None, group.attrib["data-stays"].split("|"))
            shown |= {(cause, group.attrib["data-state"]): group.attrib["data-state"] for cause in stays}
            continue
        source, target = group.attrib["data-from"], group.attrib["data-to"]
        sources = [state for state in states if state != target] if source == "*" else [source]
        shown |= dict.fromkeys(product(group.attrib["data-causes"].split("|"), sources), target)
    return shown


def moves_of(table: Mapping[str, Mapping[str, str | None]]) -> dict[tuple[str, str], str]:
    return {(cause, state): after for cause, row in table.items() for state, after in row.items() if after is not None}


def test_the_diagram_of_roles_shows_exactly_the_transitions_of_the_table(diagrams: ModuleType) -> None:
    expected = {
        (cause.value, role.value): after.value
        for cause, row in TRANSITIONS.items()
        for role, after in row.items()
        if after is not None
    }
    assert read_back(diagrams.role_diagram()) == expected


def test_the_diagram_of_members_shows_exactly_the_changes_that_the_rules_allow(diagrams: ModuleType) -> None:
    outside = diagrams.OUTSIDE
    expected = {(f"AddServer {joined}", outside): joined.value for joined in JOINING}
    expected |= {("RemoveServer", kind.value): outside for kind in MemberType}
    expected |= {(f"ChangeRole {to}", kind.value): to.value for kind, types in _MAY_BECOME.items() for to in types}
    assert read_back(diagrams.member_diagram()) == expected


def test_the_table_of_members_has_an_answer_for_each_change_of_each_type(diagrams: ModuleType) -> None:
    lines = diagrams.member_lines()
    assert len(lines) == 2 + 2 * len(MemberType) + 1
    assert (
        "| `ChangeRole VOTER` | (not a member) | (no change) | VOTER | VOTER | (wrong member type) | VOTER |" in lines
    )
    assert all(line.count("|") == 2 + 1 + len(MemberType) for line in lines)


@pytest.mark.parametrize(("cause", "state"), [("GO", "A"), ("GO", "C"), ("END", "B")])
def test_a_diagram_of_another_table_reads_back_otherwise(diagrams: ModuleType, cause: str, state: str) -> None:
    places = {"A": (100, 50), "B": (300, 50), "C": (300, 250)}

    def drawn(table: Mapping[str, Mapping[str, str | None]]) -> dict[tuple[str, str], str]:
        return read_back(diagrams.state_diagram("a table", diagrams.arrows_of(table), places, str))

    poorer = {name: {**row, state: None} if name == cause else row for name, row in SMALL.items()}
    assert drawn(SMALL) == moves_of(SMALL)
    assert drawn(poorer) == moves_of(poorer) != moves_of(SMALL)


def test_a_cause_that_leads_from_every_other_state_has_one_arrow(diagrams: ModuleType) -> None:
    arrows = diagrams.arrows_of(SMALL)
    assert [(arrow.source, arrow.target, arrow.causes) for arrow in arrows] == [
        ("A", "B", ("GO",)),
        ("C", "C", ("GO",)),
        ("*", "C", ("END",)),
    ]


def test_a_state_without_a_place_fails_the_build(diagrams: ModuleType) -> None:
    with pytest.raises(ValueError, match="no place for C; add one in docs/_ext"):
        diagrams.state_diagram("a table", diagrams.arrows_of(SMALL), {"A": (1, 1), "B": (9, 9)}, str)


@pytest.mark.parametrize(
    ("page", "directive"),
    [
        ("roles", "role-diagram"),
        ("consensus", "role-diagram"),
        ("consensus", "member-diagram"),
        ("consensus", "member-changes"),
    ],
)
def test_the_pages_have_the_diagrams(page: str, directive: str) -> None:
    text = (ROOT / f"docs/explanation/{page}.md").read_text()
    assert f"```{{stelae-{directive}}}\n" in text
