"""Compiled kernels: plain arrays in, plain arrays out. The CPU level is fixed before numba is imported."""

from learners.kernels.cpu import CPU_LEVEL

__all__ = ["CPU_LEVEL"]
