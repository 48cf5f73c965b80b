"""Finds the address of a buffer, without pyarrow or numpy.

The child that checks an environment needs it. To import pyarrow takes longer than all the rest of a small check."""

from __future__ import annotations

import ctypes


class PyBuffer(ctypes.Structure):
    """The ``Py_buffer`` of Python, whose layout is part of the stable ABI since Python 3.11."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(view: memoryview) -> int:
    """Return the address of the first byte of a contiguous view; 0 if the view is empty and has no address.

    Raises:
        BufferError: the view is not contiguous."""
    buffer = PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    try:
        return int(buffer.buf or 0)
    finally:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
