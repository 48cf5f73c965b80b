"""The config of a tablet in words, and what the commands that change it accept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.cli.kit.name_lookup import SharedAddress, UnknownName
from stelae.cli.member_text import NamedNode, changed_text, plain_view, print_view
from stelae.cli.member_types import OF_MEMBERS, OF_NEW_MEMBERS, member_type
from stelae.cli.run_tablet_members import TabletTarget, _OpenTablet, parse_config_id, run_abort
from stelae.client import ChangeResult
from stelae.protocol.member_messages import ConfigView
from stelae.spi.errors import CallerError, Unavailable
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import MemberType
from tests.unit.client.member_views import LEADER, NEW, config, view

V, P, N = MemberType.VOTER, MemberType.PRE_VOTER, MemberType.NON_VOTER


def printed(shown: ConfigView, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_view(shown)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_a_config_shows_its_id_the_leader_the_faults_and_how_far_each_member_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = printed(view(P, match=4), capsys)
    assert lines[:4] == [
        "tablet t",
        "config id 1.1",
        "leader leader:1",
        "faults survives the loss of no voter: all 2 must run; an odd number of voters is better",
    ]
    assert lines[-3:] == [
        f"leader:1 VOTER leader entry 9 {LEADER}",
        f"other:1 VOTER follower entry 9 of 9 {'b' * 32}",
        f"new:1 PRE_VOTER - entry 4 of 9 {NEW}",
    ]


def test_a_change_that_is_pending_is_shown_as_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert "pending config 1.2: adds new:1 as PRE_VOTER" in printed(view(pending=P), capsys)
    assert "pending config 1.2: makes new:1 VOTER" in printed(view(P, pending=V), capsys)
    moved = msgspec.structs.replace(view(V), config=config(OpId(1, 2), V, "moved:1"))
    assert "pending config 1.2: moves new:1 to moved:1" in printed(moved, capsys)
    removed = msgspec.structs.replace(view(V), config=config(OpId(1, 2)))
    assert "pending config 1.2: removes new:1" in printed(removed, capsys)


def test_the_marks_of_a_member_are_shown_and_what_a_move_changes(capsys: pytest.CaptureFixture[str]) -> None:
    before = view(V)
    marks = {"replaces": LEADER, "pinned": True}
    members = (msgspec.structs.replace(m, **(marks if m.node_id == NEW else {})) for m in before.config.members)
    after = msgspec.structs.replace(before.config, op_id=OpId(1, 2), members=tuple(members))
    lines = printed(msgspec.structs.replace(before, config=after), capsys)
    assert "pending config 1.2: replaces leader:1 by new:1" in lines
    assert any(line.startswith("new:1 VOTER, pinned, replaces leader:1 follower") for line in lines)
    plain = plain_view(msgspec.structs.replace(before, config=after))["members"][-1]
    assert plain["pinned"] is True and plain["replaces"] == LEADER
    added = msgspec.structs.replace(view(), config=after)
    assert "pending config 1.2: adds new:1 as VOTER, pinned, replaces leader:1" in printed(added, capsys)


def test_a_config_of_a_follower_is_said_to_be_perhaps_old(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(view(V, role="FOLLOWER"), capsys)
    assert "leader none answers" in lines and "told by leader:1, a FOLLOWER; its config may be old" in lines


def test_a_member_without_a_replica_is_not_said_to_need_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"new:1 PRE_VOTER - has no replica yet {NEW}" in printed(view(P, state="COPY"), capsys)
    copied = view(P, state="COPY", log_base=OpId(1, 4))
    assert f"new:1 PRE_VOTER - needs a copy {NEW}" in printed(copied, capsys)


def test_a_demoted_voter_that_follows_is_named_while_a_witness_waits_for_its_vote(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It looked like a tablet on which a copy is in progress."""
    shown = view(N)
    members = tuple(
        msgspec.structs.replace(one, was_voter=True) if one.node_id == NEW else one for one in shown.config.members
    )
    shown = msgspec.structs.replace(shown, config=msgspec.structs.replace(shown.config, members=members))
    assert not any(line.startswith("demoted") for line in printed(shown, capsys)), "no member lacks rows"
    progress = tuple(
        msgspec.structs.replace(one, log_only=True) if one.node_id != NEW else one for one in shown.progress
    )
    lines = printed(msgspec.structs.replace(shown, progress=progress), capsys)
    assert any(line.startswith("demoted new:1 was a VOTER and follows the leader") for line in lines)
    assert "change-role t NODE VOTER" in " ".join(lines)


def test_what_a_command_has_done_in_one_sentence_that_names_address_and_uuid() -> None:
    """After a removal by address, only the uuid was shown."""

    def said(node: NodeId, name: str, shown: ConfigView, *, changed: bool) -> str:
        return changed_text(NamedNode(node, name), ChangeResult(changed=changed, view=shown))

    assert said(NEW, "old:1", view(V), changed=True) == f"done: new:1 ({NEW}) is VOTER, has entry 9 of 9"
    assert said(NEW, "new:1", view(), changed=True) == f"done: new:1 ({NEW}) is not a member"
    assert said(NEW, "", view(), changed=False) == f"nothing to do: node {NEW} is not a member"
    assert said(NEW, NEW, view(), changed=False) == f"nothing to do: node {NEW} is not a member"
    led = said(LEADER, "", view(), changed=False)
    assert led == f"nothing to do: leader:1 ({LEADER}) is VOTER, leads in term 1"


@pytest.mark.parametrize("given", ["KING", "", "voter!", "WITNESS", "x" * 1000])
def test_a_type_that_is_none_is_refused_with_those_that_can_be_written(given: str) -> None:
    """`change-role T M KING` named the parameter of a function, and did not say what the types mean."""
    with pytest.raises(CallerError) as refused:
        member_type("TYPE", given, OF_MEMBERS)
    said = str(refused.value)
    assert said.startswith("TYPE must be the type of a member, not ") and len(said) < 400
    assert "VOTER: votes, and may lead; NON_VOTER: has all rows, and never votes; PRE_VOTER: becomes" in said


def test_a_type_is_accepted_in_any_case_if_it_is_offered() -> None:
    assert member_type("TYPE", " non_voter", OF_MEMBERS) is N
    with pytest.raises(CallerError, match="--type must be the type of a member, not 'VOTER'"):
        member_type("--type", "VOTER", OF_NEW_MEMBERS)


def test_the_plain_values_have_both_configs_and_the_progress() -> None:
    plain = plain_view(view(P, pending=V, match=4))
    assert (plain["config_id"], plain["pending"], plain["role"]) == ("1.1", "1.2", "LEADER")
    assert [member["type"] for member in plain["members"]] == ["VOTER", "VOTER", "VOTER"]
    assert plain["committed_members"][-1] == {
        "node_id": NEW,
        "address": "new:1",
        "type": "PRE_VOTER",
        "match_index": 4,
        "progress": "REPLICATE",
        "pinned": False,
        "replaces": None,
        "log_only": False,
    }
    assert msgspec.json.decode(msgspec.json.encode(plain)) == plain


def test_a_config_id_is_term_and_index() -> None:
    assert parse_config_id("") is None
    assert parse_config_id("3.17") == OpId(3, 17)


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "3.",
        ".3",
        "3.x",
        "-1.2",
        "1.-2",
        "1.2.3",
        " 1.2",
        "1,2",
        "\u0663.1",
        "\u00b2.1",
        "1." + "9" * 20,
        "9" * 5000 + ".1",
    ],
)
def test_what_is_no_config_id_is_refused_with_an_example(text: str) -> None:
    """Numbers above 64 bits were refused as a message that cannot be sent, and long ones ended with a traceback."""
    with pytest.raises(CallerError, match=r"write TERM\.INDEX as in `stelae tablet config`, such as 3\.17") as refused:
        parse_config_id(text)
    assert len(str(refused.value)) < 250


# -- members by name -----------------------------------------------------------------------------


def opened(
    *,
    servers: dict[str, NodeId] | None = None,
    answers: NodeId | None = None,
    new: MemberType | None = None,
    new_at: str = "",
) -> _OpenTablet:
    """A tablet of two members, and perhaps a ``new`` one of this type, at an address of its own with ``new_at``.

    ``servers`` are those that masters know; ``answers`` is the node at any address."""

    async def list_servers() -> Any:
        lines = [SimpleNamespace(address=address, node_id=node) for address, node in (servers or {}).items()]
        return SimpleNamespace(servers=lines)

    async def reach(address: str) -> NodeId:
        if answers is None:
            raise Unavailable(f"no answer from {address}")
        return answers

    async def shown(**_: float) -> ConfigView:
        if not new_at:
            return view(new)
        return msgspec.structs.replace(view(new), config=config(OpId(1, 1), new, new_at))

    catalog = None if servers is None else SimpleNamespace(list_servers=list_servers)
    client: Any = SimpleNamespace(catalog=catalog, connection=SimpleNamespace(reach=reach))
    replicas: Any = SimpleNamespace(config=shown)
    return _OpenTablet(client, replicas, None, {"node-1": LEADER}, 1.0)


@pytest.mark.parametrize("given", ["leader:1", LEADER, LEADER[:4], "node-1"])
def test_a_member_is_named_by_address_uuid_or_name(given: str) -> None:
    assert asyncio.run(opened().member(given)) == NamedNode(LEADER, "leader:1")


def test_an_address_of_two_members_is_refused_with_both_uuids() -> None:
    """One was lost and the other one replaces it. A removal by the address could remove either."""
    with pytest.raises(SharedAddress, match=f"2 members have the address leader:1: .*{NEW}.*write the uuid"):
        asyncio.run(opened(new=P, new_at="leader:1").member("leader:1"))
    assert asyncio.run(opened(new=P, new_at="leader:1").member(NEW)) == NamedNode(NEW, "leader:1")


def test_a_removal_by_address_can_be_repeated() -> None:
    """The second `remove-replica T 127.0.0.1:7051` ended with an error, although it is as asked."""
    assert asyncio.run(opened(servers={"gone:1": NEW}).member("gone:1")) == NamedNode(NEW, "gone:1")
    assert asyncio.run(opened(answers=NEW).member("gone:1")) == NamedNode(NEW, "gone:1")
    assert asyncio.run(opened().member(NEW)) == NamedNode(NEW, "")


@pytest.mark.parametrize(
    ("present", "added_as"), [(N, N), (MemberType.WITNESS, MemberType.WITNESS), (V, P), (P, P), (None, P)]
)
def test_a_member_at_a_new_address_stays_what_it_is(present: MemberType | None, added_as: MemberType) -> None:
    """A NON_VOTER was to be added as PRE_VOTER, which is another change. At its present address it still is."""
    assert asyncio.run(opened(new=present).type_of(NamedNode(NEW, "moved:1"))) is added_as
    assert asyncio.run(opened(new=present).type_of(NamedNode(NEW, "new:1"))) is P


@pytest.mark.parametrize("given", ["gone:1", "gone", "abc", ""])
def test_what_names_no_node_is_refused_with_the_members(given: str) -> None:
    with pytest.raises(UnknownName, match="stelae tablet config"):
        asyncio.run(opened().member(given))


@pytest.mark.parametrize("changed", [True, False])
def test_an_abort_says_whether_it_has_cancelled_anything_and_is_no_error_if_not(
    changed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def abort_change(**_: object) -> ChangeResult:
        return ChangeResult(changed=changed, view=view(V))

    @asynccontextmanager
    async def opened(self: TabletTarget) -> AsyncIterator[Any]:
        yield SimpleNamespace(replicas=SimpleNamespace(abort_change=abort_change), config_id=None)

    monkeypatch.setattr(TabletTarget, "opened", opened)
    target = TabletTarget(None, "any:1", 1.0, "t")
    assert run_abort(target, as_json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["changed"], shown["config_id"]) == (changed, "1.1")
    assert run_abort(target, as_json=False) == 0
    said = "the change was cancelled" if changed else "nothing to do: no change is in progress"
    assert f"{said}; the config is 1.1" in capsys.readouterr().err
