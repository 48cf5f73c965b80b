"""Rules that every Ready must hold to, whatever a check is about. The conformance cluster checks each Ready."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.consensus import ConsensusCore, Ready, Role
from stelae.testing.conformance.consensus_nodes import ClusterNode


@dataclass(slots=True)
class _Told:
    """What a core has given to its driver so far."""

    core: ConsensusCore | None
    ready_id: int
    commit: int


class ReadyRules:
    """Checks the Readies of a cluster against "Ordering and durability" of the contract."""

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}
        self._answers: dict[int, str] = {}

    def check(self, node: ClusterNode, ready: Ready) -> None:
        """Check a Ready before it is carried out. Raises ``AssertionError`` with the rule that it breaks."""
        told = self._told.get(node.number)
        if told is None or told.core is not node.core:
            told = self._told[node.number] = _Told(node.core, 0, node.disk.base.index)
        assert ready.id == told.ready_id + 1, "Ready ids begin at 1 and ascend without gaps"
        told.ready_id = ready.id
        self._check_append(node, ready, told.commit)
        if ready.commit is not None:
            assert ready.commit >= told.commit, f"the commit index went back from {told.commit} to {ready.commit}"
            assert ready.commit <= self._last_index(node, ready), "commits what is not in the log"
            told.commit = ready.commit
        for read in ready.reads_ready:
            assert read.index <= self._last_index(node, ready), "a read waits for what is not in the log"
        self._check_answers(ready)

    def _last_index(self, node: ClusterNode, ready: Ready) -> int:
        if ready.append is not None and ready.append.entries:
            return ready.append.entries[-1].op_id.index
        if ready.append is not None and ready.append.replace_from is not None:
            return ready.append.replace_from - 1
        return node.disk.base.index + len(node.log)

    def _check_append(self, node: ClusterNode, ready: Ready, commit: int) -> None:
        change = ready.append
        if change is None:
            return
        assert change.replace_from is None or change.replace_from > commit, "replaces a committed entry"
        leads = node.status.role is Role.LEADER
        for entry in change.entries:
            made_here = leads and entry.op_id.term == node.status.term
            assert not made_here or entry.timestamp == 0, f"entry {entry.op_id} has a timestamp of the core"

    def _check_answers(self, ready: Ready) -> None:
        """Check that each request is answered once: the driver forgets a token with its answer."""
        answers = [
            *((accepted.token, "accepted") for accepted in ready.accepted),
            *((rejection.token, "rejected") for rejection in ready.rejections),
            *((read.token, "ready to read") for read in ready.reads_ready),
            *((changed.token, "changed") for changed in ready.config_changes),
            *((token, "handed over") for token in ready.handed_over),
            *((token, "aborted") for token in ready.aborted),
            *((token, "stood down") for token in ready.stood_down),
        ]
        for token, answer in answers:
            before = self._answers.get(token)
            assert before is None, f"request {token} is answered twice: {before}, then {answer}"
            self._answers[token] = answer
