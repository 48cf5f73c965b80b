"""Logs of a node that does not run: read and check them, and give them to another engine.

Beside the kernel and not in it: nothing here runs while a node serves. Whoever calls holds the lock of the node's
directory (``stelae.host.instance.lock_directory``)."""
