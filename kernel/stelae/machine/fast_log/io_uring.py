"""The part of Linux ``io_uring`` that durable writes need: submit writes, poll one descriptor, take the completions.

We use no library, because the one for Python needs Linux 6.14. io_uring(7) and io_uring_setup(2) describe the two
system calls and the memory that is shared with the system. There is no polling thread in the system (``SQPOLL``): the
system reads submissions only inside ``io_uring_enter``, on the caller's thread. Completions may arrive while others are
taken. That needs no barrier on processors that keep the order of writes to memory. Other processors are refused."""

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
"""Numbers of the two system calls, the same on all processors."""

FEATURES: Final = 1 << 0 | 1 << 1 | 1 << 9
"""Features that the system must have (Linux 5.12): one map for both queues, no lost completion, and workers that belong
to the process."""

ORDERED: Final = ("x86_64", "AMD64")
"""Processors that keep the order of writes to memory, so that a completion is complete once it is counted."""

OP_WRITE: Final = 23
ASYNC: Final = 1 << 4
"""Flag that gives the write to a worker of the system at once. A buffered write could otherwise wait in the call."""

DIRECT: Final = 0 if never_waits(platform.release()) else ASYNC
"""Flags for direct writes. They need no worker of the system where submitting one never waits."""

RWF_DSYNC: Final[int] = getattr(os, "RWF_DSYNC", 0)
SLOTS_AT: Final = 0x10000000

_PARAMS = struct.Struct("=10I8IQ8IQ")
_WRITE = struct.Struct("=BBHiQQIIQ24x")
_ANSWER = struct.Struct("=QiI")
_WORD = 0xFFFFFFFF

# The calls do not wait. Releasing the interpreter lock for them would cost more than the calls.
_CALL = ctypes.PyDLL(None, use_errno=True).syscall
_CALL.restype = ctypes.c_long
_CALL.argtypes = [ctypes.c_long] * 7


class IoUring:
    """A ring for durable writes, with at most ``entries`` writes under way. Not shared between threads.

    Raises:
        OSError: the system has no ``io_uring``, forbids it, or lacks some of ``FEATURES``."""

    _fd = -1

    def __init__(self, entries: int) -> None:
        if not RWF_DSYNC:
            raise OSError(errno.ENOSYS, "this system has no synchronous writes")
        if platform.machine() not in ORDERED:
            raise OSError(errno.ENOSYS, f"{platform.machine()} processors do not keep the order of writes to memory")
        params = ctypes.create_string_buffer(_PARAMS.size)
        self._fd = _system(SETUP, entries, ctypes.addressof(params), 0, 0)
        # The bytes of a write must stay in memory until its completion.
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
        """Return the descriptor, which is readable as long as there are completions to take."""
        return self._fd

    @property
    def under_way(self) -> int:
        """Number of writes without a completion."""
        return len(self._under_way)

    def write(self, writes: Sequence[tuple[int, int, bytes | ArenaRange, int]]) -> int:
        """Begin durable writes.

        Args:
            writes: for each write a unique token, the file descriptor, the bytes and the offset. Bytes in an arena are
                written directly, through a descriptor for direct I/O (``DIRECT``).

        Returns:
            how many of the writes, from the first on, were begun. It is all of them unless the system lacks
            resources."""
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
            words[self._sent_tail] = (tail + begun) & _WORD  # The system reads it only inside the call.
            for token, _, _, _ in writes[begun:]:
                del self._under_way[token]
        return begun

    def answers(self) -> list[tuple[int, int]]:
        """Take all completions: the token, and the number of durable bytes or a negative error number."""
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
        """Say whether every write has its completion, taken or not. Any thread, once no more writes are begun."""
        under_way = len(self._under_way)  # Read first: a completion that is taken meanwhile counts only here.
        return under_way <= (self._words[self._got_tail] - self._words[self._got_head]) & _WORD

    def close(self) -> None:
        """Close the ring. Writes under way are still made. Closing twice is harmless."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        for data in self._under_way.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(data))  # This memory must never be used for anything else.
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
