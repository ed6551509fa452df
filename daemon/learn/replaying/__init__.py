"""Recomputing a version from its schedule, and finding where two versions part."""
