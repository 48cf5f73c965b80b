"""The health check of a cluster: asks every node for its state and reports what is wrong (``stelae check``)."""
