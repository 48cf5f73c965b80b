"""Code that several engine plugins share: ``lmdb_files`` for engines on LMDB, ``log_files`` for log engines."""
