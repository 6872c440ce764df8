"""More variance from sparse components within a budget of nonzeros."""
