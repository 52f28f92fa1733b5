"""Plain torch or numpy definitions of every kernel: the oracle of the fast ones."""
