"""Versions judged on the same held-out lists: what each scores, and which differ for sure."""
