"""One fit from end to end."""
