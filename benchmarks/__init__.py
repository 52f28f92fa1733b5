"""Measurements; each file is one workload and runs by itself. Timings never decide a test."""
