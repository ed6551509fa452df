"""Compiled kernels: plain arrays in, plain arrays out."""
