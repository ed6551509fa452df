"""Compiled code of the decoder. Importing a module of it imports numba: done only where a decoder is made."""
