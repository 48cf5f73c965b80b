"""Threads that meet a type of message for the first time at the same moment: the process lives."""

from __future__ import annotations

import subprocess
import sys

from stelae.host.consensus_metadata import CONSENSUS, ConsensusRecord
from stelae.host.metadata_files import encode
from stelae.host.superblock import SUPERBLOCK, Superblock
from stelae.protocol.codec import encode as encode_message
from stelae.protocol.tablet_messages import StatusReply
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig

TABLET = TabletId("t")
PROCESSES = 12
TIMEOUT_S = 60

PROGRAM = """
import sys, threading
from stelae.protocol.tablet_messages import StatusReply
from stelae.protocol.codec import decode as decode_message
from stelae.host.consensus_metadata import CONSENSUS
from stelae.host.metadata_files import decode
from stelae.host.superblock import SUPERBLOCK

superblock, consensus, reply = (bytes.fromhex(text) for text in sys.argv[1:])
gate = threading.Barrier(4)

def work():
    gate.wait()
    decode(SUPERBLOCK, superblock, "superblock")
    decode(CONSENSUS, consensus, "consensus")
    decode_message(reply, StatusReply)

sys.setswitchinterval(1e-5)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_that_first_meet_a_type_together_do_not_end_the_process() -> None:
    """A node died of SIGSEGV when it made its first tablets: each of them reads its files on a thread of a pool."""
    member = Member(node_id=NodeId("a" * 32), address="a:1")
    config = TabletConfig(op_id=OpId(1, 1), members=(member,))
    record = ConsensusRecord(tablet_id=TABLET, term=1, voted_for=None, committed_config=config)
    files = encode(SUPERBLOCK, Superblock(tablet_id=TABLET)), encode(CONSENSUS, record)
    bodies = [body.hex() for body in (*files, encode_message(StatusReply(())))]
    for _ in range(PROCESSES):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *bodies], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr[-800:]
