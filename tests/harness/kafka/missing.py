"""The one error of a machine that cannot run a broker."""

from __future__ import annotations


class KafkaMissing(Exception):
    """No broker can run here; the message says exactly what to install."""
