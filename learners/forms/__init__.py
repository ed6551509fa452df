"""Serving forms of what is no plain matrix."""
