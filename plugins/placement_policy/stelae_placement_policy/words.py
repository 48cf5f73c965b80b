"""The words of actions: every reason is a sentence with the figures that decided."""

from __future__ import annotations

from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.standing import Standing
from stelae_placement_policy.survey import Survey

NAME_LENGTH = 8
"""Characters of a node's id that name it in a sentence."""


class Words:
    """Makes sentences about the nodes of a survey, as its ledger has them at that moment."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._ledger: Ledger = survey.ledger
        self._names: dict[int, str] = {}

    def name(self, number: int) -> str:
        """A node's short name, with its location where it has one."""
        found = self._names.get(number)
        if found is None:
            location = self._survey.location(number)
            short = self._survey.ids[number][:NAME_LENGTH]
            found = self._names[number] = f"{short} ({location})" if location else short
        return found

    def fill(self, number: int) -> str:
        """How full a node is: replicas and bytes, beside its share."""
        ledger = self._ledger
        ideal, in_bytes = ledger.replicas * ledger.shares[number], 100 * ledger.by_bytes[number]
        return f"{ledger.count[number]} replicas of an ideal {ideal:.1f}, and {in_bytes:.0f} % of its share in bytes"

    def gone(self, number: int) -> str:
        """What is wrong with a member."""
        health = self._survey.health(number)
        return f"{self.name(number)} {'failed' if health is None or health == 'LIVE' else f'is {health}'}"

    def add(self, standing: Standing, target: int) -> str:
        """Why a member is added that the tablet lacks."""
        away = [self.gone(number) for number in (*standing.lost, *standing.leaving)]
        cause = "; ".join(away) or "its replication factor was raised, or a member is missing"
        have = f"{len(standing.steady)} steady and {len(standing.arriving)} arriving of {standing.wanted} voters"
        return f"{have}: {cause}; a copy goes to {self.name(target)}, which has {self.fill(target)}"

    def evict(self, standing: Standing, number: int) -> str:
        """Why a voter is removed, and what is left then."""
        healthy, left = len(standing.healthy - {number}), standing.voters - 1
        if number in standing.lost or number in standing.leaving:
            cause = self.gone(number)
        else:
            cause = f"{self.name(number)} costs most of them to keep, with {self.fill(number)}"
        what = f"{standing.voters} voters where {standing.wanted} are wanted"
        return f"{what}; {cause}; {healthy} of {left} that stay are healthy, {left // 2 + 1} are a majority"

    def spare(self, standing: Standing, number: int) -> str:
        """Why a copy under way is given up."""
        have = f"{len(standing.steady)} of {standing.wanted} voters are steady"
        return f"{have}; the copy on {self.name(number)} is not needed any more, and would close no gap"

    def useless(self, standing: Standing, number: int) -> str:
        """Why a member that never was a voter is removed."""
        have = f"{len(standing.steady)} steady and {len(standing.arriving)} arriving of {standing.wanted} voters"
        return f"{self.gone(number)}, and its member is no voter; {have} do without it"

    def step_aside(self, number: int, target: int, cause: str) -> str:
        """Why a leader hands over before something else happens to it."""
        led = f"{self._survey.leaders[target]} tablets are led there"
        return f"{self.name(number)} {cause}; {self.name(target)} takes over, {led}"

    def move(self, source: int, target: int, closed: float) -> str:
        """Why a replica moves for balance."""
        ends = f"{self.name(source)} has {self.fill(source)}; {self.name(target)} {self.fill(target)}"
        return f"{ends}: a move closes {100 * closed:.0f} % of a share"

    def apart(self, source: int, target: int, pairs: tuple[int, int]) -> str:
        """Why a replica moves for its location; pairs before and after, at the coarsest level that differs."""
        way = f"from {self.name(source)} to {self.name(target)}"
        return f"{pairs[0]} pairs of its replicas share a location and {pairs[1]} would, if one moved {way}"

    def lead(self, source: int, target: int) -> str:
        """Why leadership is transferred for balance."""
        survey = self._survey
        ends = (f"{self.name(n)} leads {survey.leaders[n]} of {survey.leader_share[n]:.1f}" for n in (source, target))
        return f"{'; '.join(ends)} that are its share"
