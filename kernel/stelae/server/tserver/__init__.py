"""The tablet server: hosts replicas and serves writes and scans."""
