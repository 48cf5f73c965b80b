"""A process that does to files whatever a recorder has to see. Run with a directory, and a file for marks."""

from __future__ import annotations

import os
import sys

root, marks = sys.argv[1:3]
lines = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.write(lines, b"begin 0\n")
file = os.open(f"{root}/a", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
os.write(file, b"hello")
os.pwrite(file, b"HE", 0)
os.pwritev(file, [b"xxx", b"yz"], 10)
os.ftruncate(file, 100)
os.posix_fallocate(file, 0, 200)
os.fdatasync(file)
synced = os.open(f"{root}/a", os.O_WRONLY | os.O_DSYNC)
os.pwrite(synced, b"durable", 50)
os.write(lines, b"done 0\nbegin 1\n")
os.rename(f"{root}/a", f"{root}/b")
os.lseek(file, 3, os.SEEK_SET)
os.writev(file, [b"1", b"23"])
directory = os.open(root, os.O_RDONLY)
os.fsync(directory)
other = os.open("c", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644, dir_fd=directory)
os.write(other, b"one")
os.write(other, b"two")
os.unlink(f"{root}/b")
os.write(file, b"nobody finds this again")
os.makedirs(f"{root}/d/e")
os.rename("c", "d/c", src_dir_fd=directory, dst_dir_fd=directory)
os.truncate(f"{root}/d/c", 2)
os.rmdir("d/e", dir_fd=directory)
os.open(f"{root}/d/c", os.O_WRONLY | os.O_TRUNC)
os.chdir(root)
os.mkdir("./f")
os.rename("./d/c", "./f/g")
