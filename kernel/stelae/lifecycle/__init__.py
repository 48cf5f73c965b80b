"""The life of a tablet on a node: created, recovered, deleted, set aside. Kernel code: no plugin can weaken it."""
