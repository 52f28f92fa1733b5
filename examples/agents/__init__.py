"""Agents written in sglang_lite; each file runs by itself and has a `run(backend, ...)`."""
