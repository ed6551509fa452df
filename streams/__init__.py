"""Clicks in: event and impression formats, logs that carry them, and the fast batch decoder."""
