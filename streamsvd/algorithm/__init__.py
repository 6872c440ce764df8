"""The algorithm of the paper."""
