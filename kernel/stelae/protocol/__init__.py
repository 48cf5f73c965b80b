"""Message types, codecs and fences that clients, tablet servers and masters share."""
