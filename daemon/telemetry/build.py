"""What is running, and where: the versions a metric or a manifest names."""

from __future__ import annotations

import platform
from importlib import metadata

from prometheus_client import CollectorRegistry, Info


def version() -> str:
    """Version of the installed distribution; "unknown" when run from a bare checkout."""
    try:
        return metadata.version("tripletd")
    except metadata.PackageNotFoundError:
        return "unknown"


def add_build_info(registry: CollectorRegistry, role: str) -> None:
    """`tripletd_build_info{version, python, role} 1`."""
    info = Info("tripletd_build", "What is running", registry=registry)
    info.info({"version": version(), "python": platform.python_version(), "role": role})


def add_place(registry: CollectorRegistry, checkpoints: str) -> None:
    """`tripletd_place_info{checkpoints} 1`: the folder a role works with, to tell it from another's."""
    Info("tripletd_place", "The checkpoint folder", registry=registry).info({"checkpoints": checkpoints})
