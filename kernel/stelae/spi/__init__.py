"""All that an engine plugin may import: ids, errors, contracts, services, hooks."""
