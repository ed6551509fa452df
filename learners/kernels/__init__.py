"""Compiled kernels: plain arrays in, plain arrays out. The CPU level is fixed before numba is imported."""

from .cpu import CPU_LEVEL as CPU_LEVEL
