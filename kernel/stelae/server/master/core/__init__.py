"""The masters' pure core: catalog, changes of tables, reports and reconciler. No socket, no clock, no thread."""
