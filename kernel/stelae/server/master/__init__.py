"""The master: ``core`` decides, as a pure state machine; ``driver`` runs it on a node."""
