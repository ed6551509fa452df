"""Inputs made to break decoders, and ways to see that nothing broke."""
