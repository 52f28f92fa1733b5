"""Kernels for GPUs, in Triton. Nothing here is imported where no GPU is."""
