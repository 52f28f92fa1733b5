"""Records of runs: what they cost, how they are kept, written, read and shown; they know no backend."""
