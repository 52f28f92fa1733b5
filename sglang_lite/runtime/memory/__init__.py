"""Rows, pages and the radix tree: who owns which KV page; no torch, no clock, no I/O."""
