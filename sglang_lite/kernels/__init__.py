"""Compute kernels, one op a file, one signature per op over reference, cpu and triton; imports nothing of ours."""
