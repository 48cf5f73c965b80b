"""``stelae tablet config`` and the commands that change the replicas of a tablet."""

from __future__ import annotations

from typing import Annotated

import typer

from stelae.cli.kit.connection import ConnectOption, DirOption, TimeoutOption
from stelae.cli.kit.longest_wait import FOREVER_S, LongestWaitOption, longest_wait_s
from stelae.cli.kit.output import JsonOption
from stelae.cli.kit.progress import ProgressOption

TabletArgument = Annotated[str, typer.Argument(help="Id of the tablet, or its first letters, at least four.")]
_MEMBER_HELP = "Member: its address, or its uuid, of which four letters are enough. With --dir also its name."
MemberArgument = Annotated[str, typer.Argument(metavar="MEMBER", help=_MEMBER_HELP)]
ConfigIdOption = Annotated[
    str,
    typer.Option(
        "--config-id",
        metavar="TERM.INDEX",
        help="Change the tablet only if its committed config has this op id. `stelae tablet config` shows it. "
        "Default: the op id of the present config.",
    ),
]


def register(commands: typer.Typer) -> None:
    """Add the commands to the group ``stelae tablet``."""
    commands.command("config")(config)
    commands.command("add-replica")(add_replica)
    commands.command("remove-replica")(remove_replica)
    commands.command("move")(move)
    commands.command("change-role")(change_role)
    commands.command("transfer")(transfer)
    commands.command("abort-change")(abort_change)


def config(
    tablet: TabletArgument,
    directory: DirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show the members of a tablet: type, log, and whether a change is pending.

    The leader is asked. Without a leader, the newest config that any replica knows is shown, which may be old. The
    config id is the op id of the committed config. The other commands take it as --config-id."""
    from stelae.cli.run_tablet_members import TabletTarget, run_config

    raise typer.Exit(run_config(TabletTarget(directory, connect, timeout_s, tablet), as_json=as_json))


def add_replica(
    tablet: TabletArgument,
    node: Annotated[str, typer.Argument(help="Node: its address host:port. With masters also its uuid.")],
    member_type: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="PRE_VOTER: becomes a voter. NON_VOTER: never votes. WITNESS: votes once it has caught up; stores the "
            "log but no rows. Without it, a new member is a PRE_VOTER, and a member at a new address stays what it is.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the replica is a voter.")] = False,
    wait_s: LongestWaitOption = 0.0,
    config_id: ConfigIdOption = "",
    directory: DirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a replica of a tablet on another node. For a member, change its address.

    The new replica has no vote at first. The leader sends it the log, and makes it a voter once the rest fits into one
    election timeout. That goes on by itself, whether the command waits or not. A node that stops answering
    before is removed again.

    The command waits until the new member is committed; with --wait, until the replica has its vote, which takes as
    long as the copy of the tablet. The progress shows the steps of `stelae tablet move`, and --json has the last step
    and the copy as it has them.

    The command can be repeated: a replica that is a member already is no error.

    Example: stelae tablet add-replica 3f9c 127.0.0.1:7054 --connect 127.0.0.1:7051 --wait"""
    from stelae.cli.run_tablet_members import TabletTarget, run_add

    target = TabletTarget(directory, connect, timeout_s, tablet, config_id, progress)
    raise typer.Exit(run_add(target, node, member_type, wait_s=longest_wait_s(wait, wait_s), as_json=as_json))


def remove_replica(
    tablet: TabletArgument,
    member: MemberArgument,
    config_id: ConfigIdOption = "",
    directory: DirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a replica from a tablet. With masters, its files go to the quarantine of its node.

    The quarantine is purged after [quarantine] age_s_max, or sooner for its other limits. Without masters, the files
    stay where they are.

    A leader hands over its leadership first. A change after which the voters that answer would be no majority is
    refused. The command waits until the removal is committed. It can be repeated: a node that is no member is no
    error."""
    from stelae.cli.run_tablet_members import TabletTarget, run_remove

    target = TabletTarget(directory, connect, timeout_s, tablet, config_id, progress)
    raise typer.Exit(run_remove(target, member, as_json=as_json))


def move(
    tablet: TabletArgument,
    member: MemberArgument,
    node: Annotated[str, typer.Argument(help="Node that gets the replica: its address. With masters also its uuid.")],
    wait_s: LongestWaitOption = 0.0,
    config_id: ConfigIdOption = "",
    directory: DirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move a replica to another node: add one there, wait until it is a voter, then remove the old one.

    The tablet survives as many losses meanwhile as before. The command adds the new replica, notes in the config of the
    tablet which one it replaces, and waits until that is removed. The masters remove it, also if the command exits or
    another master becomes leader. Without masters, the command removes it. If it is stopped or --wait-s is over, it can
    be repeated, and goes on where it was. If the new replica fails before it is a voter, the old one stays.

    To turn a move back, move the replica the other way, or remove the new one. To move all replicas of a server, use
    `stelae tserver retire`.

    The progress shows each step: asked, added, copying with bytes, rate and remaining time, catching up, promoted, old
    replica removed. --json has the last step and the copy: bytes_done, bytes_total, bytes_per_s and eta_ms, each null
    if it is unknown. A replica that gets all entries from the leader's log needs no copy.

    Example: stelae tablet move 3f9c 127.0.0.1:7053 127.0.0.1:7054 --connect 127.0.0.1:7051 --progress"""
    from stelae.cli.run_tablet_members import TabletTarget, run_move

    target = TabletTarget(directory, connect, timeout_s, tablet, config_id, progress)
    raise typer.Exit(run_move(target, member, node, wait_s=wait_s or FOREVER_S, as_json=as_json))


def change_role(
    tablet: TabletArgument,
    member: MemberArgument,
    member_type: Annotated[str, typer.Argument(metavar="TYPE", help="VOTER, NON_VOTER or PRE_VOTER.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until a PRE_VOTER is a voter.")] = False,
    wait_s: LongestWaitOption = 0.0,
    config_id: ConfigIdOption = "",
    directory: DirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    progress: ProgressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the type of a member.

    A voter becomes a NON_VOTER. A NON_VOTER becomes a VOTER if it has caught up; as PRE_VOTER it becomes one by itself
    once it has. A leader that is to lose its vote hands over its leadership first.

    The command waits until the new type is committed; with --wait, until a PRE_VOTER has its vote. It can be repeated:
    a member that has the type already is no error."""
    from stelae.cli.run_tablet_members import TabletTarget, run_change_role

    target = TabletTarget(directory, connect, timeout_s, tablet, config_id, progress)
    longest_s = longest_wait_s(wait, wait_s)
    raise typer.Exit(run_change_role(target, member, member_type, wait_s=longest_s, as_json=as_json))


def transfer(
    tablet: TabletArgument,
    to: Annotated[str, typer.Option("--to", help=f"{_MEMBER_HELP} Default: the most up-to-date voter.")] = "",
    config_id: ConfigIdOption = "",
    directory: DirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 30.0,
    as_json: JsonOption = False,
) -> None:
    """Hand over the leadership of a tablet to another voter. Writes wait for at most one election timeout.

    The command waits until another voter leads. It can be repeated: with --to, a voter that leads already is no
    error."""
    from stelae.cli.run_tablet_members import TabletTarget, run_transfer

    target = TabletTarget(directory, connect, timeout_s, tablet, config_id)
    raise typer.Exit(run_transfer(target, to, as_json=as_json))


def abort_change(
    tablet: TabletArgument,
    config_id: ConfigIdOption = "",
    directory: DirOption = None,
    connect: ConnectOption = "",
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Cancel a change of the members that is not in the leader's log yet.

    Only a change that waits for the leader to hand over can be cancelled. One that is in the log takes effect once a
    majority has it, because no leader ever truncates its own log. Undo it by another change then.

    The command can be repeated: that no change is in progress is no error."""
    from stelae.cli.run_tablet_members import TabletTarget, run_abort

    raise typer.Exit(run_abort(TabletTarget(directory, connect, timeout_s, tablet, config_id), as_json=as_json))
