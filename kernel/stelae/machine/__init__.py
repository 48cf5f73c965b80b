"""The real machine behind the kernel's ports: disk, clocks, threads and turns of the event loop."""
