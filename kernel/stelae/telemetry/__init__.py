"""What a node tells about itself to whoever looks after it: metrics over HTTP, and its log."""
