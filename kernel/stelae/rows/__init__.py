"""What is known of rows: keys, predicates, checksum, batches of plain values, entries of many writes."""
