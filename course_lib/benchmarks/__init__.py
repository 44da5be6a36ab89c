"""Measurements: the simulator's speed, and ladders of kernels against cuBLAS on a card."""
