"""Versions on the same lists: `tripletd judge`."""
