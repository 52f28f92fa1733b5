"""The parts of `benchmarks/gpu_check.py`; they need torch, triton, numpy and this project's runtime, nothing else."""
