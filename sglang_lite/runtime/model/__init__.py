"""Model files, configurations and torch modules."""
