"""Files and tables: what ``stelae import``, ``export``, ``scan``, ``get`` and ``sql`` do, without the command line.

Readers turn a file into chunks of numbered rows, and writers turn batches into a file; between them stands the client,
which judges every row. Nothing here knows more of a table than its client does."""
