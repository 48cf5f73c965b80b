"""A process that changes files in a way that a recorder cannot repeat. Run with a directory and a way."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

root, way = sys.argv[1:3]
file = os.open(f"{root}/a", os.O_RDWR | os.O_CREAT, 0o644)
os.write(file, bytes(mmap.PAGESIZE))
if way == "mapping":
    mmap.mmap(file, mmap.PAGESIZE)[:5] = b"hello"
elif way == "link":
    os.link(f"{root}/a", f"{root}/b")
elif way == "stdio":
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(library.fopen(f"{root}/a".encode(), b"r+"))
    library.fputs(b"hello", stream)
    library.fclose(stream)
else:
    sys.exit("no such way")
