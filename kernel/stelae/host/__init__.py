"""The kernel of a node: threads, clocks, files, group commit, and the executor of Ready."""
