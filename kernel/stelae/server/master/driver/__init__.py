"""The driver of a master: connects the pure core to the system tablet, clients and tablet servers."""
