"""The fast way to write a node's log, of ``[log] fast = true``: ``io_uring``, and direct I/O past the system's cache.

Nothing outside this package imports it, but for ``stelae.machine.real``, and that only when the setting asks for it.
The plain way is ``stelae.machine.log_driver``."""
