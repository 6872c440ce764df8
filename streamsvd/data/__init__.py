"""Whatever a user calls data becomes a source, read a strip of samples at a time."""
