"""Linux ``io_uring``, only what durable writes need: submit writes, poll one descriptor, take the answers.

There is no library, because the one for Python needs Linux 6.14. The two system calls and the memory that is shared
with the system are described in io_uring(7) and io_uring_setup(2). There is no polling thread in the system
(``SQPOLL``): the system reads submissions only inside ``io_uring_enter``, on the caller's thread. Answers may arrive
while others are taken. On processors that keep the order of writes to memory this needs no barrier; other processors
are refused."""

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from stelae.machine.fast_log.direct_io import ArenaRange, never_waits

SETUP: Final = 425
ENTER: Final = 426
"""Numbers of the system calls, the same for all processors."""

FEATURES: Final = 1 << 0 | 1 << 1 | 1 << 9
"""What the system must offer: one map for both queues, no answer lost, workers that are the process's (Linux 5.12)."""

ORDERED: Final = ("x86_64", "AMD64")
"""Processors that show writes to memory in their order, so that an answer is whole once it is counted."""

OP_WRITE: Final = 23
ASYNC: Final = 1 << 4
"""Give the write to a worker of the system at once: a buffered write could otherwise wait for the disk in the call."""

DIRECT: Final = 0 if never_waits(platform.release()) else ASYNC
"""For direct writes: they need no worker of the system where submitting one never waits."""

RWF_DSYNC: Final[int] = getattr(os, "RWF_DSYNC", 0)
SLOTS_AT: Final = 0x10000000

_PARAMS = struct.Struct("=10I8IQ8IQ")
_WRITE = struct.Struct("=BBHiQQIIQ24x")
_ANSWER = struct.Struct("=QiI")
_WORD = 0xFFFFFFFF

# Its calls do not wait: to give up the interpreter's lock for them costs more than they do.
_CALL = ctypes.PyDLL(None, use_errno=True).syscall
_CALL.restype = ctypes.c_long
_CALL.argtypes = [ctypes.c_long] * 7


class IoUring:
    """A ring for durable writes, at most ``entries`` of them under way. Not shared between threads.

    Raises:
        OSError: the system has none, forbids it, or has one that lacks ``FEATURES``."""

    _fd = -1

    def __init__(self, entries: int) -> None:
        if not RWF_DSYNC:
            raise OSError(errno.ENOSYS, "this system has no synchronous writes")
        if platform.machine() not in ORDERED:
            raise OSError(errno.ENOSYS, f"on {platform.machine()} an answer could be seen before what it says")
        params = ctypes.create_string_buffer(_PARAMS.size)
        self._fd = _system(SETUP, entries, ctypes.addressof(params), 0, 0)
        # What is written has to stay where it is until the system says so.
        self._under_way: dict[int, bytes | ArenaRange] = {}
        try:
            self._map(_PARAMS.unpack(params.raw))
        except BaseException:
            self.close()
            raise

    def _map(self, params: tuple[int, ...]) -> None:
        """Find the queues in the memory that is shared with the system."""
        self.entries, answers, features = params[0], params[1], params[5]
        if features & FEATURES != FEATURES:
            raise OSError(errno.ENOSYS, f"its features {features:#x} lack some of {FEATURES:#x}")
        sent, got = params[10:19], params[19:28]
        self._rings = mmap.mmap(self._fd, max(sent[6] + 4 * self.entries, got[5] + _ANSWER.size * answers))
        self._slots = mmap.mmap(self._fd, self.entries * _WRITE.size, offset=SLOTS_AT)
        words = self._words = memoryview(self._rings).cast("I")
        self._sent_tail, self._sent_mask, order = sent[1] // 4, words[sent[2] // 4], sent[6] // 4
        self._got_head, self._got_tail = got[0] // 4, got[1] // 4
        self._got_mask, self._answers_at = words[got[2] // 4], got[5]
        for slot in range(self.entries):
            words[order + slot] = slot

    def fileno(self) -> int:
        """What a poll finds readable as long as there are answers to take."""
        return self._fd

    @property
    def under_way(self) -> int:
        """How many writes have no answer yet."""
        return len(self._under_way)

    def write(self, writes: Sequence[tuple[int, int, bytes | ArenaRange, int]]) -> int:
        """Begin durable writes: for each a token that none under way has, the file descriptor, bytes and offset.

        Bytes that an arena has lent are written directly, through a descriptor for direct I/O (``DIRECT``).

        Returns:
            how many of them, from the first on, were begun: all, unless the system is short of something."""
        words, tail = self._words, self._words[self._sent_tail]
        for number, (token, fd, data, offset) in enumerate(writes):
            at = ((tail + number) & self._sent_mask) * _WRITE.size
            if isinstance(data, ArenaRange):
                flags, size, address = DIRECT, data.size, data.address
            else:
                flags, size, address = ASYNC, len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
            _WRITE.pack_into(self._slots, at, OP_WRITE, flags, 0, fd, offset, address, size, RWF_DSYNC, token)
            self._under_way[token] = data
        words[self._sent_tail] = (tail + len(writes)) & _WORD
        begun = 0
        with suppress(OSError):
            while begun < len(writes):
                taken = _system(ENTER, self._fd, len(writes) - begun, 0, 0)
                if not taken:
                    break
                begun += taken
        if begun < len(writes):
            words[self._sent_tail] = (tail + begun) & _WORD  # The system looks at it in the call alone.
            for token, _, _, _ in writes[begun:]:
                del self._under_way[token]
        return begun

    def answers(self) -> list[tuple[int, int]]:
        """Take the answers that are there: token, and bytes that are durable or, below zero, an error number."""
        words, found = self._words, []
        head, tail = words[self._got_head], words[self._got_tail]
        while head != tail:
            at = self._answers_at + (head & self._got_mask) * _ANSWER.size
            token, result, _ = _ANSWER.unpack_from(self._rings, at)
            found.append((token, result))
            head = (head + 1) & _WORD
        words[self._got_head] = head
        for token, _ in found:
            del self._under_way[token]
        return found

    def is_over(self) -> bool:
        """Say whether all that was begun has its answer, taken or not. Any thread may ask once nothing begins."""
        under_way = len(self._under_way)  # Asked for first: what is taken at this moment counts here, and not below.
        return under_way <= (self._words[self._got_tail] - self._words[self._got_head]) & _WORD

    def close(self) -> None:
        """Give it back. What is under way is written all the same. Closing twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        for data in self._under_way.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(data))  # Nobody may ever have this memory again.
        os.close(fd)

    def __del__(self) -> None:
        self.close()


def _system(number: int, *arguments: int) -> int:
    """Make a system call that does not wait."""
    found: int = _CALL(number, *arguments, 0, 0)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found
