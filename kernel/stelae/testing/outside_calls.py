"""Finds calls with which a pure function would look outside of its arguments: clocks, threads, files and sockets.

Python reports each call of a built-in function to a profiler. So a call is found whichever module makes it, and under
whichever name that module has imported it. What compiled code of a library calls by itself is not found."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")

_CLOCKS = frozenset(
    f"{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
)
_OUTSIDE = {
    "time": _CLOCKS | {"sleep", "clock_gettime", "clock_gettime_ns"},
    "_thread": frozenset({"start_new_thread", "start_new", "start_joinable_thread"}),
    "io": frozenset({"open", "open_code"}),
    "_io": frozenset({"open", "open_code"}),
}
"""Built-in functions by module."""
_WHOLE_MODULES = frozenset({"_socket", "select", "_posixsubprocess"})
_SYSTEM = frozenset({"posix", "nt"})
_HARMLESS = frozenset({"fspath", "sched_yield"})
_DATES = frozenset({"now", "utcnow", "today"})


def outside_calls(function: Callable[..., _Answer], *arguments: object) -> tuple[_Answer, set[str]]:
    """Call a function; return its answer, and the names of the calls that look outside, such as ``time.monotonic``.

    It is called twice, because Python imports a module within the first call if the function asks for that."""
    function(*arguments)
    found: set[str] = set()

    def note(_frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and (name := _name_outside(called)):
            found.add(name)

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # Others watch the collector, with clocks. It would run within the function by chance.
    sys.setprofile(note)
    try:
        answer = function(*arguments)
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return answer, found


def _name_outside(called: Any) -> str:
    """Return the name of a built-in function that looks outside; empty for any other."""
    name, owner = called.__name__, getattr(called, "__self__", None)
    module = called.__module__ or type(owner).__module__
    if name in _DATES and getattr(owner, "__module__", "") == "datetime":
        return f"datetime.{name}"
    in_system = module in _SYSTEM and name not in _HARMLESS
    in_network = module in _WHOLE_MODULES or isinstance(owner, socket.socket)
    outside = in_system or in_network or name in _OUTSIDE.get(module, ())
    return f"{module}.{name}" if outside else ""


def steps_of(function: Callable[..., object], *arguments: object) -> int:
    """Call a function; return how many lines of Python it ran, which is the same on every machine."""
    count = 0

    def step(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count
