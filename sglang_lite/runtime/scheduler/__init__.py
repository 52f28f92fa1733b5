"""The scheduler core: which tokens run in the next step; no torch, no clock, no I/O."""
