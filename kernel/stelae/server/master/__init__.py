"""The masters' pure core: catalog, changes of tables, reports, and the reconciler. No socket and no clock here."""
