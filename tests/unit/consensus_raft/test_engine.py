"""Registration, restore, and settings of the engine."""

from __future__ import annotations

import dataclasses
import random

import msgspec
import pytest

import stelae_consensus_raft
from stelae.spi.consensus import HardState, LogView
from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.settings import limits_of
from stelae_consensus_raft import RaftEngine
from stelae_consensus_raft.config import RaftConfig
from tests.unit.consensus_raft.solo import ME, THREE, log_of


def restored(hard_state: HardState, log: LogView, commit: int, applied: int) -> None:
    RaftEngine.restore(
        node_id=ME,
        hard_state=hard_state,
        log=log,
        commit=commit,
        applied=applied,
        committed_config=THREE,
        config=RaftConfig(),
        rng=random.Random(1),
        now_us=0,
    )


def test_the_plugin_registers_the_engine_by_its_name() -> None:
    assert stelae_consensus_raft.stelae_consensus_engines() == [RaftEngine]
    assert RaftEngine.name == "raft"
    assert RaftEngine.is_vote_request <= set(RaftEngine.message_types)


@pytest.mark.parametrize(
    ("hard_state", "log", "commit", "applied", "fact"),
    [
        (HardState(1), log_of(1, 2), 0, 0, "the log ends at 2.2, but the durable term is 1"),
        (HardState(2), log_of(1, 2), 3, 0, "the commit index is 3, but the log ends at 2.2"),
        (HardState(2), log_of(1, 2), 1, 2, "applied index 2 is above the commit index 1"),
    ],
)
def test_contradicting_metadata_is_refused_with_the_fact(
    hard_state: HardState, log: LogView, commit: int, applied: int, fact: str
) -> None:
    with pytest.raises(Corrupt, match=fact):
        restored(hard_state, log, commit, applied)


def test_every_setting_has_bounds_unit_and_reason_and_a_default_within_them() -> None:
    for field in dataclasses.fields(RaftConfig):
        limits = limits_of(field)
        assert limits.reason and limits.unit
        assert limits.low is not None and limits.high is not None
        assert limits.low <= field.default <= limits.high


@pytest.mark.parametrize("kind", RaftEngine.message_types)
@pytest.mark.parametrize("number", [-1, 2**62, "x"])
def test_the_codec_refuses_terms_out_of_range(kind: str, number: object) -> None:
    message_type = RaftEngine.message_types[kind]
    fields = {"term": number, "last": (1, 1), "prev": (1, 1), "commit": 0, "campaign_term": 0}
    known = {info.name for info in msgspec.structs.fields(message_type)}
    frame = msgspec.msgpack.encode({k: v for k, v in fields.items() if k in known})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(frame, type=message_type)


def test_positions_above_32_bits_are_nothing_special() -> None:
    base = OpId(2**40, 2**41)
    restored(HardState(2**40), log_of(2**40, base=base), 2**41 + 1, 2**41 + 1)
