"""The fast path to write a node's log, for ``[log] fast = true``: ``io_uring``, and direct I/O past the system's cache.

Only ``stelae.machine.real`` imports this package, and only when the setting asks for it. The plain path is
``stelae.machine.log_driver``."""
