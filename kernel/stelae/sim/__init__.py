"""The simulator: whole clusters of real cores on virtual clock, network and disk."""
