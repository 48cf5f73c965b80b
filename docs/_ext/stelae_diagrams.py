"""State diagrams that are generated from the code, so that they cannot drift from it.

Directives:

- ``stelae-role-diagram``: the roles of a replica, from the transition table of ``consensus_raft``
- ``stelae-member-diagram``: the types of a member, from the rules of config changes
- ``stelae-member-changes``: the same as a table, with the reason of each refusal

The diagrams are SVG. Each arrow and each box has its meaning in its attributes, so that a test can read the
diagram back and compare it with the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, NamedTuple, TypeAlias

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from stelae_reference import directive, table

from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import AddServer, ChangeRole, Member, MemberChange, MemberType, RemoveServer, TabletConfig
from stelae_consensus_raft.config_change_rules import Refusal, changed_members
from stelae_consensus_raft.transitions import TRANSITIONS

EVERY = "*"
"""As the source of an arrow: every state but its target."""

OUTSIDE = "no member"
"""The state of a node that is not in the config."""

ROLE_PLACES = {
    "LEARNER": (130, 195),
    "NON_PARTICIPANT": (370, 290),
    "FOLLOWER": (370, 70),
    "CANDIDATE": (680, 70),
    "LEADER": (680, 290),
}
"""The centre of each role in the diagram, in pixels. A role without a place fails the build."""

MEMBER_PLACES = {
    OUTSIDE: (125, 180),
    "PRE_VOTER": (370, 50),
    "NON_VOTER": (680, 180),
    "VOTER": (680, 50),
    "PRE_WITNESS": (370, 310),
    "WITNESS": (680, 310),
}
"""The centre of each type of member in the diagram, in pixels."""

WIDTH, HEIGHT = 770, 380
BOX_WIDTH, BOX_HEIGHT, LINE, SIDE = 152, 34, 13, 9
"""Sizes in pixels: of a box with one line, of each further line, and how far an arrow and its counterpart are apart."""

Point: TypeAlias = tuple[float, float]


class Arrow(NamedTuple):
    """An arrow of a diagram. ``source`` is ``EVERY`` if each cause leads from every other state to ``target``."""

    source: str
    target: str
    causes: tuple[str, ...]


def arrows_of(table: Mapping[str, Mapping[str, str | None]]) -> list[Arrow]:
    """Return the arrows of a table ``cause -> state -> state``; ``None``: the cause is ignored.

    An arrow from a state to itself says that the cause is not ignored. A cause that leads from all other states to the
    same one has one arrow for all of them."""
    found: dict[tuple[str, str], list[str]] = {}
    for cause, row in table.items():
        stays = [state for state, after in row.items() if after == state]
        moves = {state: after for state, after in row.items() if after is not None and after != state}
        if len(set(moves.values())) == 1 and len(moves) == len(row) - 1:
            moves = dict.fromkeys([EVERY], next(iter(moves.values())))
        for source, after in (moves | dict(zip(stays, stays, strict=True))).items():
            found.setdefault((source, after), []).append(cause)
    return [Arrow(source, target, tuple(causes)) for (source, target), causes in found.items()]


# -- tables from the code --------------------------------------------------------------------------


def role_table() -> dict[str, dict[str, str | None]]:
    """Return the transition table of the roles, as text."""
    return {
        str(cause): {str(role): None if after is None else str(after) for role, after in row.items()}
        for cause, row in TRANSITIONS.items()
    }


SUBJECT = NodeId("a" * 32)
OTHER = Member(node_id=NodeId("b" * 32), address="b:1")


def member_changes() -> dict[str, MemberChange]:
    """Return every change of one member, by a short name."""
    joins = [AddServer(node_id=SUBJECT, address="a:1", member_type=kind) for kind in MemberType]
    roles = [ChangeRole(node_id=SUBJECT, member_type=kind) for kind in MemberType]
    named: dict[str, MemberChange] = {f"AddServer {change.member_type}": change for change in joins}
    named |= {f"ChangeRole {change.member_type}": change for change in roles}
    return named | {"RemoveServer": RemoveServer(node_id=SUBJECT)}


def member_outcomes() -> dict[str, dict[str, str | Refusal]]:
    """Return what the rules answer: ``change -> type before -> type after``, or the refusal."""
    return {
        name: {state: _outcome(state, change) for state in (OUTSIDE, *MemberType)}
        for name, change in member_changes().items()
    }


def _outcome(state: str, change: MemberChange) -> str | Refusal:
    own = () if state == OUTSIDE else (Member(node_id=SUBJECT, address="a:1", member_type=MemberType(state)),)
    after = changed_members(TabletConfig(op_id=OpId(1, 1), members=(*own, OTHER)), change)
    if isinstance(after, Refusal):
        return after
    return next((str(member.member_type) for member in after if member.node_id == SUBJECT), OUTSIDE)


def member_table() -> dict[str, dict[str, str | None]]:
    """Return the changes of members as a table for ``arrows_of``. A refused change is ignored."""
    outcomes = member_outcomes().items()
    return {
        name: {state: None if isinstance(after, Refusal) else after for state, after in row.items()}
        for name, row in outcomes
    }


def member_lines() -> list[str]:
    """Return the changes of members as a Markdown table. A refusal is in parentheses, as words."""
    outcomes = member_outcomes()
    states = [OUTSIDE, *map(str, MemberType)]
    rows = []
    for name, row in outcomes.items():
        cells = (_reason(after) if isinstance(after, Refusal) else after for after in row.values())
        rows.append((f"`{name}`", *cells))
    return table(("change", *states), rows)


def _reason(refusal: Refusal) -> str:
    return f"({refusal.reason.replace('_', ' ').lower()})"


# -- drawing ---------------------------------------------------------------------------------------


def role_diagram() -> str:
    """Return the diagram of the roles as SVG."""
    return state_diagram("The roles of a replica", arrows_of(role_table()), ROLE_PLACES, str)


def member_diagram() -> str:
    """Return the diagram of the types of a member as SVG."""
    arrows = arrows_of(member_table())
    return state_diagram("The types of a member", arrows, MEMBER_PLACES, lambda cause: cause.split()[0])


def state_diagram(
    title: str, arrows: list[Arrow], places: Mapping[str, tuple[int, int]], label: Callable[[str], str]
) -> str:
    """Return a state diagram as SVG.

    Args:
        places: the centre of each state. A state that has none fails the build.
        label: what the diagram writes for a cause.

    Raises:
        ValueError: a state has no place.
    """
    named = dict.fromkeys(state for arrow in arrows for state in (arrow.source, arrow.target) if state != EVERY)
    missing = [state for state in named if state not in places]
    if missing:
        raise ValueError(f"the diagram has no place for {', '.join(missing)}; add one in docs/_ext/stelae_diagrams.py")
    stays = {arrow.source: arrow.causes for arrow in arrows if arrow.source == arrow.target}
    heights = {state: BOX_HEIGHT + LINE * len(_stay_lines(stays.get(state, ()), label)) for state in places}
    parts = [_arrow(arrow, arrows, places, heights, label) for arrow in arrows if arrow.source != arrow.target]
    parts += [_box(state, places[state], heights[state], stays.get(state, ()), label) for state in places]
    return (
        f'<svg class="stelae-diagram" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" '
        f'style="max-width:{WIDTH}px" xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
        '<defs><marker id="stelae-tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0 1L9 5L0 9z" fill="currentColor"/></marker></defs>'
        f"{''.join(parts)}</svg>"
    )


TEXT = 'fill="currentColor" font-family="sans-serif" text-anchor="middle"'
EDGE = 'stroke="var(--color-background-primary, #fff)" stroke-width="4" paint-order="stroke" stroke-linejoin="round"'
"""A margin in the colour of the page, so that a line does not strike a label through."""


def _stay_lines(causes: tuple[str, ...], label: Callable[[str], str]) -> list[str]:
    names = list(dict.fromkeys(map(label, causes)))
    return [f"stays: {names[0]}", *names[1:]] if names else []


def _box(state: str, place: tuple[int, int], height: int, causes: tuple[str, ...], label: Callable[[str], str]) -> str:
    x, y = place
    top = y - height / 2
    lines = "".join(
        f'<text x="{x}" y="{top + BOX_HEIGHT + LINE * number + 2:g}" font-size="10" opacity="0.75" {TEXT}>'
        f"{escape(line)}</text>"
        for number, line in enumerate(_stay_lines(causes, label))
    )
    return (
        f'<g data-state="{escape(state)}" data-stays="{escape("|".join(causes))}">'
        f'<rect x="{x - BOX_WIDTH / 2:g}" y="{top:g}" width="{BOX_WIDTH}" height="{height}" rx="6" '
        'fill="var(--color-background-secondary, #f4f6f8)" stroke="currentColor"/>'
        f'<text x="{x}" y="{top + 22:g}" font-size="13" font-weight="600" {TEXT}>{escape(state)}</text>{lines}</g>'
    )


def _arrow(
    arrow: Arrow,
    arrows: list[Arrow],
    places: Mapping[str, tuple[int, int]],
    heights: Mapping[str, int],
    label: Callable[[str], str],
) -> str:
    names = list(dict.fromkeys(map(label, arrow.causes)))
    if arrow.source == EVERY:
        x, y = places[arrow.target]
        end = (float(x), y + heights[arrow.target] / 2)
        start = (end[0], end[1] + 22)
        names = [f"from every other state: {', '.join(names)}"]
        middle = (start[0], start[1] + 10)
    else:
        start, end, normal = _ends(arrow, arrows, places, heights)
        away = abs(normal[0]) * 3.4 * max(map(len, names)) + abs(normal[1]) * (LINE * len(names) / 2 + 4)
        middle = ((start[0] + end[0]) / 2 + normal[0] * away, (start[1] + end[1]) / 2 + normal[1] * away)
    first = middle[1] - LINE * (len(names) - 1) / 2 + 4
    lines = "".join(
        f'<text x="{middle[0]:.0f}" y="{first + LINE * number:.0f}" font-size="11" {TEXT} {EDGE}>{escape(name)}</text>'
        for number, name in enumerate(names)
    )
    return (
        f'<g data-from="{escape(arrow.source)}" data-to="{escape(arrow.target)}" '
        f'data-causes="{escape("|".join(arrow.causes))}"><line x1="{start[0]:.0f}" y1="{start[1]:.0f}" '
        f'x2="{end[0]:.0f}" y2="{end[1]:.0f}" stroke="currentColor" marker-end="url(#stelae-tip)"/>{lines}</g>'
    )


def _ends(
    arrow: Arrow, arrows: list[Arrow], places: Mapping[str, tuple[int, int]], heights: Mapping[str, int]
) -> tuple[Point, Point, Point]:
    """Return both ends of an arrow, at the borders of its boxes, and the direction in which its label is moved away.

    An arrow with a counterpart keeps to one side, with its label. The label of another arrow is on its line."""
    (x1, y1), (x2, y2) = places[arrow.source], places[arrow.target]
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    has_counterpart = any((other.source, other.target) == (arrow.target, arrow.source) for other in arrows)
    normal = (-(y2 - y1) / length, (x2 - x1) / length) if has_counterpart else (0.0, 0.0)
    dx, dy = normal[0] * SIDE, normal[1] * SIDE
    start, end = (x1 + dx, y1 + dy), (x2 + dx, y2 + dy)
    return (
        _at_border(start, end, places[arrow.source], heights[arrow.source]),
        _at_border(end, start, places[arrow.target], heights[arrow.target]),
        normal,
    )


def _at_border(inside: Point, towards: Point, centre: tuple[int, int], height: int) -> Point:
    """Return where the line from a point in a box leaves the box."""
    dx, dy = towards[0] - inside[0], towards[1] - inside[1]
    shares = []
    for delta, at, middle, half in ((dx, inside[0], centre[0], BOX_WIDTH / 2), (dy, inside[1], centre[1], height / 2)):
        if delta:
            shares.append((middle + (half if delta > 0 else -half) - at) / delta)
    share = min(shares)
    return inside[0] + dx * share, inside[1] + dy * share


# -- Sphinx ----------------------------------------------------------------------------------------


class Diagram(SphinxDirective):
    """A directive whose content is an SVG image made by a function."""

    make: Callable[[], str]

    def run(self) -> list[nodes.Node]:
        """Make the diagram."""
        try:
            image = type(self).make()
        except ValueError as error:
            raise self.error(str(error)) from error
        return [nodes.raw("", image, format="html")]


def diagram(make: Callable[[], str]) -> type[Diagram]:
    """Return a directive class around a function that returns SVG."""
    return type(f"Diagram_{make.__name__}", (Diagram,), {"make": staticmethod(make)})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives."""
    app.add_directive("stelae-role-diagram", diagram(role_diagram))
    app.add_directive("stelae-member-diagram", diagram(member_diagram))
    app.add_directive("stelae-member-changes", directive(member_lines))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
