"""What the leading master shows of the cluster to whoever asks what its policy would do."""

from __future__ import annotations

import pytest

from stelae.protocol.master_messages import GetPolicyPart, PolicyPart
from stelae.server.master.core import read_answers
from stelae.server.master.core.events import Reply
from tests.unit.master.master_with_servers import SERVERS, MasterWithServers, create, only


def part(cluster: MasterWithServers, question: GetPolicyPart) -> PolicyPart:
    (reply,) = only(cluster.read(question), Reply)
    assert isinstance(reply.body, PolicyPart)
    return reply.body


def test_the_cluster_is_shown_as_the_policy_sees_it_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_answers, "POLICY_TABLETS_MAX", 2)
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear()
    tablets = sorted(cluster.create_running(create(buckets=3)))
    first, rest = part(cluster, GetPolicyPart()), part(cluster, GetPolicyPart(after=tablets[1]))
    assert first.more and sorted(first.snapshot.tablets) == tablets[:2]
    assert not rest.more and sorted(rest.snapshot.tablets) == tablets[2:]
    assert set(first.snapshot.nodes) == set(rest.snapshot.nodes) == set(SERVERS[:3])
    assert all(len(view.replicas) == 3 for view in first.snapshot.tablets.values())
