"""How the rows of a table are spread over its tablets: by hash, by range, or by both."""
