"""Reads and checks the logs of a stopped node, and converts them to another log engine.

Nothing here runs while a node serves. The caller holds the lock of the node's directory
(``stelae.host.instance.lock_directory``)."""
